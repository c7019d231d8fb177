"""One run of `fairseq-xl data prepare`: its description, folders and texts."""

from collections.abc import Collection, Iterator

import sentencepiece

from fairseq_xl.data.vocabulary import subwords, tokenizers
from fairseq_xl.io.versions import version
from preprocess import check, shards
from preprocess.binarize import encoded_name
from preprocess.config import Config, Folder, Side, Split
from preprocess.stages import Stages


class Run:
    """The input of all stages of a run.
    Args:
        config: the description.
        reports: the check's report of each file.
        stages: records of the stages, in the data folder.
        jobs: number of parallel processes.
        cleaned: for each cleaned file, the file of the description, and what was left out of it.
    """

    def __init__(
        self, config: Config, reports: dict[str, check.Report], stages: Stages, jobs: int, cleaned: dict[str, dict]
    ):
        self.config, self.reports, self.stages, self.jobs = config, reports, stages, jobs
        self.cleaned = cleaned
        self.data_bin = stages.data_bin
        # subfolders of the data folder; "" is the data folder itself
        self.shards = [str(shard) for shard in range(config.shards)] if config.shards else [""]
        self.joint = stages.folder / "joint" if config.shards else self.data_bin  # of the vocabulary of all shards
        vocabulary = config.vocabulary
        if vocabulary.existing:
            added = {subwords.ADDED: config.added_tokens} if config.added_tokens else {}
            options = vocabulary.source(config.root).options | added
        else:
            options = {name: getattr(vocabulary, name) for name in subwords.OPTIONS[vocabulary.kind]}
        self.subwords = subwords.in_folder(self.joint, vocabulary.kind, options)
        self.dictionary = self.joint / "dict.txt"
        self.ids = stages.folder / "ids.txt"  # the symbols of dict.txt without their counts, for fairseq-preprocess
        self.encoded = stages.folder / "encoded"
        self.sections: dict[str, list[list[list[shards.Section]]]] = {}  # by folder, shard and side of training text

    def sentences(self, names: list[str]) -> int:
        """Counts the lines of files that are not blank."""
        return sum(self.reports[name].lines - self.reports[name].blank for name in names)

    def encoded_texts(
        self, folder: Folder, split: Split, side: Side, shards_of_text: Collection[str] | None = None
    ) -> Iterator[tuple[str, list[shards.Section], list[bool]]]:
        """Yields the name of each encoded text of a side, the sections of its files, and `encode`'s boundaries.

        Training text has an encoded text for each shard, other text has one, of the shard "". `shards_of_text` limits
        the shards.
        """
        after = self.boundaries(split)
        whole = [shards.Section(i, 0, None) for i in range(len(side.files))]
        for shard in self.shards_of(split):
            if shards_of_text is not None and shard not in shards_of_text:
                continue
            parts = self.sections[folder.name][int(shard)][split.sides.index(side)] if shard else whole
            name = encoded_name(folder, split.name, side.language, shard)
            yield name, parts, [part.end is None and after[part.file] for part in parts]

    def shards_of(self, split: Split) -> list[str]:
        """Lists the shards of a split: all for training text, and [""] for a text that all shards share."""
        return self.shards if split.name == "train" else [""]

    def tokenizer(self, language: str) -> list[str | None]:
        """Returns the name, language and package version of a language's tokenizer; [] for raw text."""
        name = self.config.tokenizers.get(language)
        return [name, language, *tokenizers.versions({language: name}).values()] if name else []

    def boundaries(self, split: Split) -> list[bool]:
        """Tells after which files of a split an empty line is added, on both sides: a document ends with its file."""
        ended = [all(self.reports[name].ends_blank for name in files) for files in zip(*(s.files for s in split.sides))]
        return [not blank for blank in ended[:-1]] + [False]

    def name_of(self, folder: Folder, shard: str) -> str:
        """Returns the path of a folder in the data folder: ``en``, or ``0/en`` in a shard."""
        return f"{shard}/{folder.name}" if shard else folder.name


def splitter_version(kind: subwords.Kind) -> dict[str, str | None]:
    """Returns the package that splits text into sub-words, and its version; {} for this package."""
    if kind == "sentencepiece":
        return {"sentencepiece": sentencepiece.__version__}
    return {"tokenizers": version("tokenizers")} if kind == "wordpiece" else {}


def fairseq_version() -> str:
    """Returns the version of the installed fairseq."""
    return version("fairseq") or "unknown"
