"""Sentences of twelve words in 41 languages, for the small synthetic releases of XGLUE and XTREME.

A sentence is a sequence of concepts, translated word by word: scores on such sentences say nothing about real text.
"""

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

#: Anna, Berlin, river, house, dog, red, big, reads, sees, two, film, doctor
WORDS = {
    "af": "Anna Berlyn rivier huis hond rooi groot lees sien twee film dokter",
    "ar": "آنا برلين نهر بيت كلب أحمر كبير يقرأ يرى اثنان فيلم طبيب",
    "bg": "Анна Берлин река къща куче червен голям чете вижда две филм лекар",
    "bn": "আনা বার্লিন নদী বাড়ি কুকুর লাল বড় পড়ে দেখে দুই ছবি ডাক্তার",
    "de": "Anna Berlin Fluss Haus Hund rot groß liest sieht zwei Film Arzt",
    "el": "Άννα Βερολίνο ποτάμι σπίτι σκύλος κόκκινο μεγάλο διαβάζει βλέπει δύο ταινία γιατρός",
    "en": "Anna Berlin river house dog red big reads sees two film doctor",
    "es": "Ana Berlín río casa perro rojo grande lee ve dos película médico",
    "et": "Anna Berliin jõgi maja koer punane suur loeb näeb kaks film arst",
    "eu": "Ana Berlin ibaia etxea txakurra gorria handia irakurtzen ikusten bi filma medikua",
    "fa": "آنا برلین رودخانه خانه سگ قرمز بزرگ خواند دید دو فیلم پزشک",
    "fi": "Anna Berliini joki talo koira punainen suuri lukee näkee kaksi elokuva lääkäri",
    "fr": "Anne Berlin fleuve maison chien rouge grand lit voit deux cinéma médecin",
    "he": "אנה ברלין נהר בית כלב אדום גדול קורא רואה שניים סרט רופא",
    "hi": "अन्ना बर्लिन नदी घर कुत्ता लाल बड़ा पढ़ता देखता दो फिल्म डॉक्टर",
    "hu": "Anna Berlin folyó ház kutya piros nagy olvas lát kettő film orvos",
    "id": "Anna Berlin sungai rumah anjing merah besar membaca melihat dua film dokter",
    "it": "Anna Berlino fiume casa cane rosso grande legge vede due cinema medico",
    "ja": "アンナ ベルリン 川 家 犬 赤い 大きい 読む 見る 二つ 映画 医者",
    "jv": "Anna Berlin kali omah asu abang gedhe maca ndelok loro pilem dhokter",
    "ka": "ანა ბერლინი მდინარე სახლი ძაღლი წითელი დიდი კითხულობს ხედავს ორი ფილმი ექიმი",
    "kk": "Анна Берлин өзен үй ит қызыл үлкен оқиды көреді екі фильм дәрігер",
    "ko": "안나 베를린 강 집 개 빨간 큰 읽는다 본다 둘 영화 의사",
    "ml": "അന്ന ബെർലിൻ നദി വീട് നായ ചുവപ്പ് വലിയ വായിക്കുന്നു കാണുന്നു രണ്ട് സിനിമ ഡോക്ടർ",
    "mr": "आना बर्लिन नदी घर कुत्रा लाल मोठा वाचतो पाहतो दोन चित्रपट डॉक्टर",
    "ms": "Anna Berlin sungai rumah anjing merah besar membaca melihat dua filem doktor",
    "my": "အန်နာ ဘာလင် မြစ် အိမ် ခွေး အနီ ကြီး ဖတ် မြင် နှစ် ရုပ်ရှင် ဆရာဝန်",
    "nl": "Anna Berlijn rivier huis hond rood groot leest ziet twee film dokter",
    "pl": "Anna Berlin rzeka dom pies czerwony duży czyta widzi dwa film lekarz",
    "pt": "Ana Berlim rio casa cão vermelho grande lê vê dois filme médico",
    "ru": "Анна Берлин река дом собака красный большой читает видит два фильм врач",
    "sw": "Ana Berlini mto nyumba mbwa nyekundu kubwa anasoma anaona mbili filamu daktari",
    "ta": "அன்னா பெர்லின் ஆறு வீடு நாய் சிவப்பு பெரிய படிக்கிறார் பார்க்கிறார் இரண்டு படம் மருத்துவர்",
    "te": "అన్నా బెర్లిన్ నది ఇల్లు కుక్క ఎరుపు పెద్ద చదువుతుంది చూస్తుంది రెండు సినిమా వైద్యుడు",
    "th": "แอนนา เบอร์ลิน แม่น้ำ บ้าน สุนัข แดง ใหญ่ อ่าน เห็น สอง หนัง หมอ",
    "tl": "Anna Berlin ilog bahay aso pula malaki bumabasa nakikita dalawa pelikula doktor",
    "tr": "Anna Berlin nehir ev köpek kırmızı büyük okur görür iki film doktor",
    "ur": "انا برلن دریا گھر کتا سرخ بڑا پڑھتا دیکھتا دو فلم ڈاکٹر",
    "vi": "Anna Béc-lin sông nhà chó đỏ lớn đọc thấy hai phim bác-sĩ",
    "yo": "Anna Berlin odò ilé ajá pupa ńlá kà rí méjì fíìmù dókítà",
    "zh": "安娜 柏林 河流 房子 小狗 红色 大的 阅读 看见 两个 电影 医生",
}
POS = "PROPN PROPN NOUN NOUN NOUN ADJ ADJ VERB VERB NUM NOUN NOUN".split()
NER = ["B-PER", "B-LOC"] + ["O"] * 10
RED, BIG, FILM, DOCTOR = 5, 6, 10, 11
THINGS = (2, 3, FILM)  # objects of the sentences
SHORT, LONG = 3, 40  # sentences of a context
Draw = Callable[[], list[int]]


def draw(rng: random.Random) -> list[int]:
    """Draws the concepts of a sentence: Anna or a doctor or a dog reads or sees something, perhaps in Berlin."""
    concepts = [rng.choice((0, 4, 11)), rng.choice((7, 8)), *rng.choice(((), (9,))), *rng.choice(((), (5,), (6,)))]
    return [*concepts, rng.choice(THINGS), *rng.choice(((), (1,)))]


def sentence(words: list[str], concepts: list[int]) -> str:
    """Returns concepts as words of a language."""
    return " ".join(words[concept] for concept in concepts)


def tagged(tags: list[str], words: list[str], concepts: list[int]) -> str:
    """Returns a sentence with a tag for each word, a word per line."""
    return "".join(f"{words[concept]}\t{tags[concept]}\n" for concept in concepts) + "\n"


def inference(words: list[str], first: list[int], second: list[int], rng: random.Random) -> tuple[str, str, str]:
    """Returns premise, hypothesis and label of XNLI: its beginning, its beginning in red, or another sentence."""
    red = [RED if concept == BIG else concept for concept in first]
    kinds = {"entailment": first[:2], "contradiction": [*red[:2], RED], "neutral": second}
    label = rng.choice(list(kinds))
    return sentence(words, first), sentence(words, kinds[label]), label


def questions(prefix: str, words: list[str], rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Returns articles in SQuAD's format: where is the film?

    A context has `SHORT` sentences, every eighth `LONG`, which is more than an input of the smoke tests. A random
    sentence has the film as its object.
    """
    articles = []
    for i in range(count):
        sentences = [draw(rng) for _ in range(LONG if i % 8 == 7 else SHORT)]
        film_row = rng.randrange(len(sentences))
        for row, concepts in enumerate(sentences):
            thing = FILM if row == film_row else rng.choice(THINGS[:-1])
            sentences[row] = [thing if concept in THINGS else concept for concept in concepts]
        context = [concept for concepts in sentences for concept in concepts]
        before = sentence(words, context[: context.index(FILM)])
        answers = [{"text": words[FILM], "answer_start": len(before) + 1}]
        question = {"id": f"{prefix}-{i}", "question": words[FILM], "answers": answers}
        articles.append({"paragraphs": [{"context": sentence(words, context), "qas": [question]}]})
    return articles


def squad(articles: list[dict[str, Any]]) -> str:
    """Returns a file in SQuAD's format."""
    return json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False)


def write(path: Path, text: str) -> None:
    """Writes a file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_corpus(folder: Path, languages: Iterable[str], pieces: int) -> None:
    """Writes monolingual text, bitext of each language with English, and corpus.yaml for `fairseq-xl data prepare`."""
    content: dict[str, Any] = {"languages": list(languages), "vocabulary": {"size": pieces}}
    content |= {"monolingual": {}, "bitext": {}}
    for split, count in (("train", 400), ("valid", 30)):
        rng = random.Random(split)
        sentences = [draw(rng) for _ in range(count)]
        texts = {
            language: "".join(f"{sentence(WORDS[language].split(), concepts)}\n" for concepts in sentences)
            for language in languages
        }
        for language, text in texts.items():
            write(folder / f"{split}.{language}", text)
            content["monolingual"].setdefault(language, {})[split] = f"{split}.{language}"
            if language != "en":
                pair = "-".join(sorted((language, "en")))
                for side in (language, "en"):
                    write(folder / f"{split}.{pair}.{side}", texts[side])
                content["bitext"].setdefault(pair, {})[split] = f"{split}.{pair}"
    write(folder / "corpus.yaml", yaml.safe_dump(content, sort_keys=False))
