"""Text in sixteen languages, and data folders with sub-words learned from it."""

import io

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from fairseq_xl.data.vocabulary.subwords import open_subwords
from preprocess.sample import corpus
from preprocess.sample.generator import realize
from preprocess.vocabulary import new_symbols, write_dictionary

TEXTS = {
    "de": ["Die Häuser in der Straße sind grün.", "Öffnen Sie das Menü „Bearbeiten“, und wählen Sie „Löschen“."],
    "el": ["Ανοίξτε το μενού και επιλέξτε διαγραφή.", "Τα σπίτια του δρόμου είναι πράσινα."],
    "en": ["Open the menu “Edit”, then choose “Delete all”…", "The file is 3.5 MB; see http://example.org/a?b=c#d."],
    "es": ["¿Dónde está la casa verde de mi niño?", "Abra el menú «Editar» y elija «Borrar»."],
    "fr": ["L’été, où vont les élèves ? À l’école !", "Ouvrez le menu « Édition » ; choisissez « Supprimer »."],
    "hi": ["मेनू खोलें और हटाएँ चुनें।", "सड़क के घर हरे हैं, क्या यह ज़रूरी है?"],
    "it": ["Aprite il menu «Modifica» e scegliete «Elimina».", "Perché la città è così bella?"],
    "ja": ["メニューを開いて、「削除」を選びます。", "ｶﾀｶﾅ（半角）と全角ＡＢＣ１２３です。"],
    "ko": ["메뉴를 열고 ‘삭제’를 선택하세요.", "거리의 집들은 초록색입니다."],
    "nl": ["Open het menu ‘Bewerken’ en kies ‘Verwijderen’.", "De huizen zijn groen; één is ’s nachts blauw."],
    "pl": ["Otwórz menu „Edycja” i wybierz „Usuń”.", "Żółte źdźbła łąki są śliczne."],
    "pt": ["Abra o menu “Editar” e não escolha “Excluir”.", "As casas são verdes, à exceção de três."],
    "ru": ["Откройте меню «Правка» и выберите «Удалить».", "Объём файла — 3,5 МБ № 5."],
    "tr": ["İşareti seçin ve ISPARTA’ya gidin.", "Düzenle menüsünü açın, ardından Sil’i seçin."],
    "vi": ["Mở trình đơn và chọn lệnh Xoá.", "Sắp xếp các hàng hiện thời."],
    "zh": ["打开菜单，然后选择“删除”。", "街上的房子是绿色的：３．５ＭＢ。"],
}
#: text with other spaces, characters that rules of normalization change or remove, marks, and unknown characters
ODD = [
    " a  house ",
    "a\u00a0house\u3000of \t stone\r",
    "\u2581a\u2581\u2581house \u2581",
    "house\u200bof\u200d\ufe0f stone\ufeff",
    "a\u0001b\u007fc\u0085d",
    "½ ㎏ ﬁne ™ № ⅷ ①② ＦＵＬＬ ﷺ",
    "e\u0301te\u0301 u\u0308ber",
    "S\u1eafp x\xea\u0301p h\u01a1\u0300",  # half composed, as old Vietnamese encodings have it
    "\u0e01\u0e33 ก็ กำลัง",
    "ꙮ𓀀𓀁 𝔘nknown \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a" * 300,
    "x" * 5 + "ꙮ" * 5,
    "[xx] <x> </x> @-@ &amp;",
    "0000000 ------ ........ wwww",
    "ÀÉÎ ẞ ǅ ΣΊΣΥΦΟΣ İI",
    "שָׁלוֹם العَرَبِيَّة",
    "안녕 \u1112\u1161",
]
LINES = [line for lines in TEXTS.values() for line in lines]


def training_lines():
    """The lines of `TEXTS`, repeated, and a few hundred of the sample corpus."""
    _, alone = corpus.plan(40, 1)
    return [*LINES * 10, *(line for code, found in alone.items() for each in found for line in realize(each, code)[1])]


def trained(lines, kind="unigram", rule="nmt_nfkc", size=1200, exact=True, **options):
    """A SentencePiece model, learned as `fairseq-xl data prepare` does it; rare characters have no piece.

    With `exact`, scores are rounded so that sums of them are exact in 32 bits: then segmentations with equal scores are
    equal to SentencePiece, as they are to other programs.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        character_coverage=0.998,
        normalization_rule_name=rule,
        hard_vocab_limit=False,
        **dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=1, minloglevel=2),
        **options,
    )
    found = ModelProto.FromString(model.getvalue())
    for piece in found.pieces if exact else ():
        piece.score = round(piece.score * 1024) / 1024
    return found.SerializeToString()


def write_data(folder, model, languages=tuple(TEXTS)):
    """A data folder with sentencepiece.model and dict.txt; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.model").write_bytes(model)
    write_dictionary(new_symbols(open_subwords(folder), languages), {}, folder / "dict.txt")
    return folder
