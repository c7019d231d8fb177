"""Reads tagged words in columns, as CoNLL's.

    fairseq-xl data read conll corpora/ner train.en=eng.train valid.en=eng.testa test.en=eng.testb --columns 4

Files are those of the CoNLL-2002 and 2003 shared tasks on named entities (Tjong Kim Sang 2002; Tjong Kim Sang & De
Meulder 2003), whose columns the options describe, CoNLL-U files, whose tag is the part of speech (UPOS), and WikiANN's
(Rahimi et al. 2019).
"""

from functools import partial
from pathlib import Path

from fairseq_xl.commands import parser_of
from fairseq_xl.errors import UserError, check_number
from fairseq_xl.io import bounds
from preprocess.commands import run
from preprocess.readers.file_arguments import add_arguments, read_file_arguments
from preprocess.readers.labeled import Part, build, tagged_line
from preprocess.readers.tagged import UPOS, Columns, read_tagged, span_tags

ENCODINGS = ("utf-8", "iso-8859-1")
CONLLU = Columns(10, tag=3, word=1, conllu=True)
WIKIANN = Columns(2, empty=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = parser_of(__name__)
    add_arguments(parser, "SPLIT.XX=FILE")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--columns", type=int, metavar="N", help="columns of the files, of which the first is the word")
    kind.add_argument("--conllu", action="store_true", help="CoNLL-U: the tag is the part of speech (UPOS)")
    kind.add_argument("--wikiann", action="store_true", help="WikiANN, of which PAN-X is made: LANGUAGE:WORD TAB TAG")
    parser.add_argument("--tag-column", type=int, metavar="N", help="column of the tag, from 1 on (default: the last)")
    parser.add_argument(
        "--types", default="LOC,MISC,ORG,PER", metavar="X,Y", help="types of names in the tags (default: %(default)s)"
    )
    parser.add_argument(
        "--encoding", choices=ENCODINGS, default="utf-8", help="encoding of the files (default: %(default)s)"
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        columns, tags = CONLLU if options.conllu else WIKIANN, UPOS
        if options.columns is not None:
            check_number("--columns", options.columns, "1 or more", bounds.LARGEST_BEAM)
            columns = _columns(options.columns, options.tag_column)
        elif options.tag_column is not None:
            raise UserError("--tag-column is for --columns")
        if not options.conllu:
            tags = span_tags(options.types.replace(",", " "))
        settings = (str(columns), *sorted(tags), options.encoding)
        parts = []
        for split, languages, path in read_file_arguments(options.files):
            if len(languages) > 1:
                raise UserError(f"{path}: expected one language, found {', '.join(languages)}")
            if options.wikiann:
                columns = columns._replace(prefix=f"{languages[0]}:")
            read = partial(read_tagged, language=languages[0], columns=columns, tags=tags, encoding=options.encoding)
            name = f"{split}.{languages[0]}"
            parts.append(Part(name, path, {languages[0]: f"{name}.tsv"}, read, line=tagged_line, settings=settings))
        header = {
            "corpus": ["CoNLL-U" if options.conllu else "WikiANN" if options.wikiann else "CoNLL"],
            "languages": list(dict.fromkeys(language for part in parts for language in part.files)),
        }
        build(options.destination, Path(), parts, header)

    return run(work, options.destination, "conll: ")


def _columns(count: int, tag: int | None) -> Columns:
    """Returns the columns of the options; raises UserError for a tag that is not in a column after the word."""
    tag = count if tag is None else tag
    if not 2 <= tag <= count:
        raise UserError(f"--columns {count}: expected the tag in a column from 2 to {max(2, count)}, found {tag}")
    return Columns(count, tag=tag - 1, separator="[ \t]+")
