"""Reads questions in SQuAD's format.

    fairseq-xl data read squad corpora/qa train.en=train-v1.1.json valid.en=dev-v1.1.json test.de=xquad.de.json

Files are those of SQuAD 1.1, XQuAD, MLQA and TyDiQA-GoldP. Those of TyDiQA-GoldP have several languages, which the ids
of their questions name (Clark et al. 2020): ``train.ar,en=FILE`` reads two of them.
"""

from functools import partial
from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError
from preprocess.commands import run
from preprocess.readers.file_arguments import add_arguments, read_file_arguments
from preprocess.readers.labeled import Part, build, copied, skip_invalid_option
from preprocess.readers.questions import read_file

#: language -> its name in ids of TyDiQA-GoldP, such as arabic-2387335860751143628-1
NAMES = {
    "ar": "arabic",
    "bn": "bengali",
    "en": "english",
    "fi": "finnish",
    "id": "indonesian",
    "ko": "korean",
    "ru": "russian",
    "sw": "swahili",
    "te": "telugu",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    add_arguments(parser, "SPLIT.XX=FILE")
    skip_invalid_option(parser)
    options = parser.parse_args(arguments)

    def work() -> None:
        parts = []
        for split, languages, path in read_file_arguments(options.files):
            for language in languages:
                prefix = f"{_name(language)}-" if len(languages) > 1 else ""
                read = partial(read_file, language=language, training=split == "train", prefix=prefix)
                name = f"{split}.{language}"
                files, leave_out = {language: f"{name}.json"}, options.skip_invalid
                parts.append(Part(name, path, files, read, line=copied, settings=(prefix,), leave_out=leave_out))
        codes = list(dict.fromkeys(language for part in parts for language in part.files))
        build(options.destination, Path(), parts, {"corpus": ["SQuAD"], "languages": codes})

    return run(work, options.destination, "squad: ")


def _name(language: str) -> str:
    """Returns the name of a language in ids of TyDiQA-GoldP; raises UserError if it is not one of its languages."""
    if language not in NAMES:
        raise UserError(f"a file of several languages: {language} is not one of TyDiQA-GoldP's {', '.join(NAMES)}")
    return NAMES[language]
