"""Reads XGLUE's understanding tasks (Liang et al. 2020).

    fairseq-xl data read xglue xglue_full_dataset.tar.gz corpora/xglue --tasks NER,XNLI

DEST has a folder for each task, with the files that `xl_classification`, `xl_ranking`, `xl_tagging` and
`xl_question_answering` read. Training text is English only. Test files of the first release have no labels; `_`
(unlabeled) is written instead. QAM is the public successor of XQA, on which the Unicoder paper fine-tunes, and which
was never distributed.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from fairseq_xl.evaluation.classification_scores import UNLABELED
from fairseq_xl.evaluation.xglue import EXTRA_LANGUAGES, LANGUAGES as SCORED
from fairseq_xl.io.compressed import stored
from preprocess.readers import xnli
from preprocess.readers.labeled import Example, Part, copied, read_benchmark, read_rows, read_table, tagged_line
from preprocess.readers.problems import Problems
from preprocess.readers.questions import read_file
from preprocess.readers.tagged import UPOS, Columns, read_tagged, span_tags

SPLITS = (("train", "train"), ("valid", "dev"), ("test", "test"))
LANGUAGES = {name: tuple(codes.split()) for name, codes in SCORED.items() if name not in ("QG", "NTG")}
LANGUAGES["WPR"] = (*LANGUAGES["WPR"], *EXTRA_LANGUAGES["WPR"])
ALL = tuple(sorted({language for codes in LANGUAGES.values() for language in codes}))
CATEGORIES = "foodanddrink sports news entertainment health video finance travel lifestyle autos".split()
LABELS: dict[str, Mapping[str, str]] = {
    "NC": dict(zip(CATEGORIES, CATEGORIES)),
    "XNLI": {name: name for name in ("contradiction", "entailment", "neutral")} | {"contradictory": "contradiction"},
    "PAWSX": {"0": "0", "1": "1"},
    "QADSM": {"Good": "Good", "Bad": "Bad"},
    "WPR": {rating: rating for rating in "01234"},
    "QAM": {"0": "0", "1": "1"},
}
#: words of POS may contain spaces, as those of Universal Dependencies; a tag `_` stays unlabeled
COLUMNS = {"NER": Columns(2, separator=" "), "POS": Columns(2, separator=" ", blanks=True)}
TAGS = {"NER": span_tags("LOC MISC ORG PER"), "POS": UPOS | {UNLABELED}}
TEXTS = {"NC": 2, "XNLI": 2, "PAWSX": 2, "QADSM": 3, "WPR": 3, "QAM": 2}  # of a line; NC may have a query before them
JOIN_TITLES = "write QADSM and WPR as pairs, as in the released system: the query, and title and text joined by a space"
#: training text of XNLI, and files of all languages, which may replace de.dev and the like
XNLI = {"train": "multinli.train.en.tsv", "dev": "xnli.dev.tsv", "test": "xnli.test.tsv"}


def file_of(task: str, split: str, language: str) -> str:
    """Returns the path of a file in the folder of its task."""
    if task in ("NER", "POS"):
        return f"{language}.{split}"
    if task == "XNLI":
        return XNLI[split] if split == "train" else f"{language}.{split}"
    if task == "PAWSX":
        return f"{language}/{split if split == 'train' else f'{split}_2k'}.tsv"
    if task == "MLQA":
        pair = f"{split}-context-{language}-question-{language}.json"
        return "squad1.1/train-v1.1.json" if split == "train" else f"MLQA_V1/{split}/{pair}"
    return f"xglue.{task.lower()}.{language}.{split}"


def parts(task: str, release: Path, languages: list[str], leave_out: bool, join_titles: bool = False) -> Iterator[Part]:
    """Yields the parts of a task; `release` is its folder or the folder that contains it."""
    joins = join_titles and TEXTS.get(task) == 3
    whole = any((release / name).is_dir() for name in LANGUAGES)
    folder = release / task if whole else release
    for language in languages:
        for split, split_name in SPLITS:
            if split == "train" and language != "en":
                continue
            path = folder / file_of(task, split_name, language)
            name = f"{task}/{split}.{language}"
            tsv, training = {language: f"{name}.tsv"}, split == "train"
            if task == "MLQA":
                read = partial(read_file, language=language, training=training)
                yield Part(name, path, {language: f"{name}.json"}, read, line=copied, leave_out=leave_out)
            elif task in COLUMNS:
                read = partial(read_tagged, language=language, columns=COLUMNS[task], tags=TAGS[task])
                yield Part(name, path, tsv, read, line=tagged_line)
            elif task == "XNLI" and not stored(path).is_file() and stored(joint := folder / XNLI[split_name]).is_file():
                read = partial(xnli.evaluation, languages=[language], columns=xnli.PLAIN)
                yield Part(name, joint, tsv, read)
            else:
                read = partial(labeled, task=task, language=language, joins=joins)
                settings = ("joined titles",) if joins else ()
                yield Part(name, path, tsv, read, keeps_empty=True, settings=settings, leave_out=leave_out and training)


def labeled(path: Path, problems: Problems, task: str, language: str, joins: bool) -> Iterator[Example]:
    """Yields the examples of a file; those of a test file without labels are unlabeled, by its first line.

    With `joins` the last two texts become one.
    """
    rows: Iterator[tuple[int, list[str]]]
    if task == "PAWSX":
        rows = read_table(path, problems, ("sentence1", "sentence2", "label"))
    elif path.name.startswith("multinli"):
        rows = read_table(path, problems, ("premise", "hypo", "label"))
    else:
        rows = read_rows(path, problems, skip_empty=False)
    count, queries, has_query, is_unlabeled = TEXTS[task], task == "NC", False, None
    for line_number, fields in rows:
        if is_unlabeled is None:
            has_query = queries and len(fields) == count + 1 and fields[-1] not in LABELS[task]
            is_unlabeled = ".test" in path.suffixes and (len(fields) == count or has_query)  # it may be compressed
        texts = fields[-count:] if is_unlabeled else fields[-1 - count : -1]
        if joins:
            texts[-2:] = [" ".join(filter(None, texts[-2:]))]
        if is_unlabeled and len(fields) == count + has_query:
            yield Example(language, UNLABELED, tuple(texts))
        elif is_unlabeled:
            texts_of_a_line = f"{'a query and ' * has_query}{count} texts and no label, as in line 1"
            problems.wrong(
                "wrong columns", f"{path}, line {line_number}: expected {texts_of_a_line}, found {len(fields)} fields"
            )
        elif count + 1 <= len(fields) <= count + 1 + queries:
            if label := problems.label(path, line_number, "label", fields[-1], LABELS[task]):
                yield Example(language, label, tuple(texts))
        else:
            problems.wrong(
                "wrong columns",
                f"{path}, line {line_number}: expected {count} texts and a label, found {len(fields)} fields",
            )


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    release = "xglue_full_dataset.tar.gz, or the folder that it contains, or that of one task"
    return read_benchmark(
        *("xglue", "XGLUE", release, LANGUAGES, parts, arguments),
        archive=True,
        alternatives=XNLI.values(),
        flags={"join_titles": JOIN_TITLES},
    )
