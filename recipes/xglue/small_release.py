"""python -m recipes.xglue.small_release RELEASE CORPUS: a made-up release of XGLUE in 19 languages, and parallel text.

Its files have the names and formats of the release, so that the reader, fine-tuning, predictions and scores can be run
on all nine tasks in minutes. Sentences are twelve words in a few orders, translated word by word: scores on them say
nothing about real text.
"""

import argparse
import itertools
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import yaml

from preprocess.readers.xglue import ALL, LANGUAGES, file_of

#: Anna, Berlin, river, house, dog, red, big, reads, sees, two, film, doctor
WORDS = {
    "ar": "آنا برلين نهر بيت كلب أحمر كبير يقرأ يرى اثنان فيلم طبيب",
    "bg": "Анна Берлин река къща куче червен голям чете вижда две филм лекар",
    "de": "Anna Berlin Fluss Haus Hund rot groß liest sieht zwei Film Arzt",
    "el": "Άννα Βερολίνο ποτάμι σπίτι σκύλος κόκκινο μεγάλο διαβάζει βλέπει δύο ταινία γιατρός",
    "en": "Anna Berlin river house dog red big reads sees two film doctor",
    "es": "Ana Berlín río casa perro rojo grande lee ve dos película médico",
    "fr": "Anne Berlin fleuve maison chien rouge grand lit voit deux cinéma médecin",
    "hi": "अन्ना बर्लिन नदी घर कुत्ता लाल बड़ा पढ़ता देखता दो फिल्म डॉक्टर",
    "it": "Anna Berlino fiume casa cane rosso grande legge vede due cinema medico",
    "nl": "Anna Berlijn rivier huis hond rood groot leest ziet twee film dokter",
    "pl": "Anna Berlin rzeka dom pies czerwony duży czyta widzi dwa film lekarz",
    "pt": "Ana Berlim rio casa cão vermelho grande lê vê dois filme médico",
    "ru": "Анна Берлин река дом собака красный большой читает видит два фильм врач",
    "sw": "Ana Berlini mto nyumba mbwa nyekundu kubwa anasoma anaona mbili filamu daktari",
    "th": "แอนนา เบอร์ลิน แม่น้ำ บ้าน สุนัข แดง ใหญ่ อ่าน เห็น สอง หนัง หมอ",
    "tr": "Anna Berlin nehir ev köpek kırmızı büyük okur görür iki film doktor",
    "ur": "انا برلن دریا گھر کتا سرخ بڑا پڑھتا دیکھتا دو فلم ڈاکٹر",
    "vi": "Anna Béc-lin sông nhà chó đỏ lớn đọc thấy hai phim bác-sĩ",
    "zh": "安娜 柏林 河流 房子 小狗 红色 大的 阅读 看见 两个 电影 医生",
}
POS = "PROPN PROPN NOUN NOUN NOUN ADJ ADJ VERB VERB NUM NOUN NOUN".split()
NER = ["B-PER", "B-LOC"] + ["O"] * 10
PERSON, RED, BIG, FILM, DOCTOR = 0, 5, 6, 10, 11
COUNTS = {"train": 300, "dev": 40, "test": 40}
Draw = Callable[[], list[int]]


def draw(rng: random.Random) -> list[int]:
    """Concepts of a sentence: Anna or a doctor or a dog reads or sees something, perhaps in Berlin."""
    found = [rng.choice((0, 4, 11)), rng.choice((7, 8)), *rng.choice(((), (9,))), *rng.choice(((), (5,), (6,)))]
    return [*found, rng.choice((2, 3, 10)), *rng.choice(((), (1,)))]


def sentence(words: list[str], concepts: list[int]) -> str:
    """Concepts as words of a language."""
    return " ".join(words[number] for number in concepts)


def line(task: str, words: list[str], concepts: Draw, rng: random.Random) -> Iterator[str]:
    """The lines of an example of a task with one label per line."""
    first, second, yes = concepts(), concepts(), rng.random() < 0.5
    text, other = sentence(words, first), sentence(words, second)
    if task == "NC":
        category = "entertainment" if FILM in first else "health" if DOCTOR in first else "news"
        yield f"{text}\t{other}\t{category}"
    elif task == "XNLI":
        red = [RED if number == BIG else number for number in first]
        kinds = {"entailment": first[:2], "contradiction": [*red[:2], RED], "neutral": second}
        label = rng.choice(list(kinds))
        yield f"{text}\t{sentence(words, kinds[label])}\t{label}"
    elif task == "PAWSX":
        yield f"{rng.randrange(1000)}\t{text}\t{sentence(words, first[::-1] if yes else second)}\t{int(yes)}"
    elif task == "QADSM":
        yield f"{text}\t{text if yes else other}\t{other}\t{'Good' if yes else 'Bad'}"
    elif task == "QAM":
        yield f"{text}\t{text if yes else other}\t{int(yes)}"
    else:  # WPR: pages repeat more or less of the query
        for rating in rng.sample(range(5), 3):
            yield f"{text}\t{sentence(words, [*first[:rating], *second[rating:]])}\t{other}\t{rating}"


def tagged(task: str, words: list[str], concepts: Draw) -> str:
    """A sentence with a tag for each word."""
    tags = POS if task == "POS" else NER
    return "".join(f"{words[number]} {tags[number]}\n" for number in concepts()) + "\n"


def questions(split: str, language: str, words: list[str], concepts: Draw, count: int) -> str:
    """A file in SQuAD's format: who or what comes first?"""
    articles = []
    for number in range(count):
        drawn = concepts()
        answers = [{"text": words[drawn[0]], "answer_start": 0}]
        question = {"id": f"{language}-{split}-{number}", "question": words[PERSON], "answers": answers}
        articles.append({"paragraphs": [{"context": sentence(words, drawn), "qas": [question]}]})
    return json.dumps({"version": "1.1", "data": articles}, ensure_ascii=False)


def file(task: str, split: str, language: str) -> str:
    """The text of a file of the release."""
    words, rng = WORDS[language].split(), random.Random(f"{task} {split}")
    count, concepts = COUNTS[split], partial(draw, rng)
    if task == "MLQA":
        return questions(split, language, words, concepts, count)
    if task in ("NER", "POS"):
        return "".join(tagged(task, words, concepts) for _ in range(count))
    lines = list(itertools.chain.from_iterable(line(task, words, concepts, rng) for _ in range(count)))
    if task == "PAWSX":
        lines = ["id\tsentence1\tsentence2\tlabel", *lines]
    if (task, split) == ("XNLI", "train"):
        lines = ["premise\thypo\tlabel", *(text.replace("contradiction", "contradictory") for text in lines)]
    return "".join(f"{text}\n" for text in lines)


def write(path: Path, text: str) -> None:
    """Writes a file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("python -m recipes.xglue.small_release", description=__doc__)
    parser.add_argument("release", type=Path, metavar="RELEASE", help="folder to write the release to")
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="folder to write text and its description to")
    options = parser.parse_args(arguments)
    for task, languages in LANGUAGES.items():
        for language, split in itertools.product(languages, COUNTS):
            if split != "train" or language == "en":
                write(options.release / task / file_of(task, split, language), file(task, split, language))
    described: dict = {"languages": list(ALL), "vocabulary": {"size": 600}, "monolingual": {}, "bitext": {}}
    for split, count in (("train", 400), ("valid", 30)):
        rng = random.Random(split)
        drawn = [draw(rng) for _ in range(count)]
        for language in ALL:
            text = "".join(f"{sentence(WORDS[language].split(), concepts)}\n" for concepts in drawn)
            write(options.corpus / f"{split}.{language}", text)
            described["monolingual"].setdefault(language, {})[split] = f"{split}.{language}"
            if language != "en":
                pair = "-".join(sorted((language, "en")))
                for side in (language, "en"):
                    write(options.corpus / f"{split}.{pair}.{side}", text if side != "en" else english(split, drawn))
                described["bitext"].setdefault(pair, {})[split] = f"{split}.{pair}"
    write(options.corpus / "corpus.yaml", yaml.safe_dump(described, sort_keys=False))


def english(split: str, drawn: list[list[int]]) -> str:
    """The English side of all pairs."""
    return "".join(f"{sentence(WORDS['en'].split(), concepts)}\n" for concepts in drawn)


if __name__ == "__main__":
    main()
