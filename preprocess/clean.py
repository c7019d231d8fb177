"""Cleans training text: drops unlikely translations, over-long lines, lines in another language, and duplicates.

The key `clean` of a description, or of a pair in it, names the rules. Each left-out pair or line counts for the first
rule that it breaks, in the order of `RULES`; the manifest has the counts. Validation and test text stays as it is.
Empty lines, which end documents, stay as one each. Memory does not grow with the text.
"""

import hashlib
import itertools
import logging
import math
import shutil
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import replacing
from preprocess import check
from preprocess.config import Clean, Config, Folder, Side, Split
from preprocess.duplicates import Duplicates
from preprocess.files import Workers, texts_in
from preprocess.stages import Stages, key_of
from preprocess.vocabulary import training_files

#: reasons to leave out a pair or a line
RULES = ("one_sided", "too_long", "length_ratio", "token_ratio", "copy", "language", "duplicate")
TYPICAL = 10_000  # pairs from which the typical ratio of lengths is taken
SHORT = 15  # characters: shorter sentences are not compared with the ratio, nor in their language
LEARNED = 20_000  # lines of each language from which its trigrams are counted
MARGIN = 0.3  # nats per trigram by which another language must be more probable

logger = logging.getLogger("preprocess")


class Trigrams:
    """Guesses the language of a line by the frequencies of its character trigrams.

    Args:
        texts: {language: lines to learn from}
    """

    def __init__(self, texts: Mapping[str, Iterable[str]]):
        counts = {code: Counter(itertools.chain.from_iterable(map(trigrams, lines))) for code, lines in texts.items()}
        symbols = len(set().union(*counts.values())) + 1
        self.log_shares, self.unseen = {}, {}
        for code, frequencies in counts.items():
            total = sum(frequencies.values()) + symbols
            self.log_shares[code] = {trigram: math.log((count + 1) / total) for trigram, count in frequencies.items()}
            self.unseen[code] = -math.log(total)

    def is_wrong(self, line: str, language: str) -> bool:
        """Whether another language makes the line more probable by `MARGIN` per trigram."""
        line_trigrams = trigrams(line)
        if len(line_trigrams) < SHORT or language not in self.log_shares:
            return False
        means = {
            code: sum(shares.get(trigram, self.unseen[code]) for trigram in line_trigrams) / len(line_trigrams)
            for code, shares in self.log_shares.items()
        }
        return max(means.values()) > means[language] + MARGIN


def trigrams(line: str) -> list[str]:
    """Lists the character trigrams of a line in lower case, with a space at both ends."""
    padded = f" {line.lower()} "
    return [padded[i : i + 3] for i in range(len(padded) - 2)]


@dataclass
class Cleaner:
    """Decides which pairs, or lines of one language, stay.

    Attributes:
        rules: the settings of the description.
        languages: codes of the sides.
        typical: typical ratio of the lengths of the sides, first to second; 1 for one language.
        guess: None without the rule `language`.
    """

    rules: Clean
    languages: tuple[str, ...]
    typical: float = 1.0
    guess: Trigrams | None = None

    def reason(self, sides: tuple[str, ...]) -> str | None:
        """Returns the rule that a pair or a line breaks; None if it stays. Empty lines on all sides stay."""
        if not all(sides):
            return "one_sided" if any(sides) else None
        words = [len(side.split()) for side in sides]
        if self.rules.longest and max(words) > self.rules.longest:
            return "too_long"
        if len(sides) == 2:
            ratio = len(sides[0]) / len(sides[1]) / self.typical
            long = max(map(len, sides)) > SHORT
            if self.rules.length_ratio and long and max(ratio, 1 / ratio) > self.rules.length_ratio:
                return "length_ratio"
            if self.rules.token_ratio and max(words) > self.rules.token_ratio * min(words):
                return "token_ratio"
            if self.rules.copies and sides[0].casefold() == sides[1].casefold():
                return "copy"
        if self.guess and any(map(self.guess.is_wrong, sides, self.languages)):
            return "language"
        return None


def clean_files(paths: list[Path], outputs: list[Path], cleaner: Cleaner, expected: int = 0) -> dict[str, int]:
    """Writes the lines of aligned files that stay; returns the counts "all", "kept" and of each rule.

    Runs of empty lines become one. `expected` is about the number of lines.
    """
    folder = outputs[0].with_name(f"{outputs[0].name}.judged")
    shutil.rmtree(folder, ignore_errors=True)  # of a killed run
    folder.mkdir(parents=True)
    reasons = folder / "reasons"  # a byte for each line: 0, or the index of its rule in `RULES` plus 1
    _judge(paths, cleaner, reasons, Duplicates(folder, expected))
    counts = _write_kept(paths, outputs, reasons)
    shutil.rmtree(folder)
    return {name: counts[name] for name in ("all", "kept", *RULES)}


def _judge(paths: list[Path], cleaner: Cleaner, reasons: Path, duplicates: Duplicates) -> None:
    """Writes the reasons of all lines."""
    with open(reasons, "wb") as file:
        for line_number, sides in enumerate(zip(*map(texts_in, paths))):
            reason = cleaner.reason(sides)
            file.write(bytes([RULES.index(reason) + 1 if reason else 0]))
            if cleaner.rules.duplicates and reason is None and all(sides):
                digest = hashlib.blake2b("\n".join(sides).encode(), digest_size=8).digest()
                duplicates.add(int.from_bytes(digest, "little"), line_number)
    duplicates.mark(reasons, RULES.index("duplicate") + 1)


def _write_kept(paths: list[Path], outputs: list[Path], reasons: Path) -> Counter:
    """Writes the lines without a reason; returns the counts."""
    counts = Counter()
    with ExitStack() as stack:
        files = [stack.enter_context(replacing(output, make_folder=True)) for output in outputs]
        reason_of = stack.enter_context(open(reasons, "rb"))
        ended = True  # after an empty line or at the beginning
        for sides in zip(*map(texts_in, paths)):
            reason = reason_of.read(1)[0]
            if not any(sides):
                if not ended:
                    for file in files:
                        file.write(b"\n")
                ended = True
                continue
            counts["all"] += 1
            counts[RULES[reason - 1] if reason else "kept"] += 1
            if not reason:
                ended = False
                for file, side in zip(files, sides):
                    file.write(f"{side}\n".encode())
    return counts


def typical_ratio(paths: list[Path]) -> float:
    """Median ratio of the lengths, in characters, of the sides of the first `TYPICAL` pairs."""
    if len(paths) == 1:
        return 1.0
    pairs = (sides for sides in zip(*map(texts_in, paths)) if all(sides))
    ratios = [len(first) / len(second) for first, second in itertools.islice(pairs, TYPICAL)]
    return statistics.median(ratios) if ratios else 1.0


def clean(
    config: Config, reports: dict[str, check.Report], stages: Stages, count: int
) -> tuple[Config, dict[str, check.Report], dict[str, dict]]:
    """Cleans all training files that the description has rules for.
    Args:
        reports: {file: its report}
        count: number of processes that check the cleaned files.

    Returns: the description of the cleaned files, their reports, and {cleaned file: {"path": the file, and counts}}.
    """
    entries = {}
    guess = None
    if any(rules and rules.language for rules in map(config.rules_of, config.folders)):
        learn = {
            code: itertools.islice(itertools.chain.from_iterable(texts_in(config.root / n) for n in names), LEARNED)
            for code, names in training_files(config).items()
            if names
        }
        if len(learn) > 1:
            guess = Trigrams(learn)
        else:
            logger.warning(
                "clean: the rule `language` compares training text of several languages, so it leaves out nothing; the "
                "description has training text of %s",
                ", ".join(learn) or "none",
            )
    folders = []
    for folder in config.folders:
        rules = config.rules_of(folder)
        if rules:
            cleaned = [
                _cleaned(config.root, rules, folder, split, guess if rules.language else None, reports, stages, entries)
                for split in folder.splits
            ]
            folder = replace(folder, splits=tuple(cleaned))
        folders.append(folder)
    with Workers(count) as workers:
        added = {
            name: check.check_file(name, Path(name), workers, tqdm(disable=True))
            for name in entries
            if name not in reports
        }
    for name, report in added.items():
        if report.problems:
            raise UserError(f"clean leaves nothing of {entries[name]['path']}: {report.problems[0]}")
    for entry in entries.values():
        dropped = {rule: entry[rule] for rule in RULES if entry[rule]}
        logger.log(
            logging.WARNING if 2 * entry["kept"] < entry["all"] else logging.INFO,
            *("clean %s: %d of %d stay; left out: %s", entry["path"], entry["kept"], entry["all"], dropped or "none"),
        )
    return replace(config, folders=tuple(folders)), reports | added, entries


def _cleaned(
    root: Path,
    rules: Clean,
    folder: Folder,
    split: Split,
    guess: Trigrams | None,
    reports: dict[str, check.Report],
    stages: Stages,
    entries: dict[str, dict],
) -> Split:
    """Returns a split with its cleaned files, which are written unless they are up to date, and adds their entries."""
    if split.name != "train":
        return split
    languages = tuple(side.language for side in split.sides)
    cleaned = [[] for _ in split.sides]
    for i, names in enumerate(zip(*(side.files for side in split.sides))):
        paths = [root / name for name in names]
        outputs = [stages.folder / "clean" / f"{folder.name}.{i}.{code}" for code in languages]
        inputs = {"rules": asdict(rules), "languages": languages, "files": [reports[name].sha256 for name in names]}
        if guess:
            inputs["all files"] = key_of(sorted(report.sha256 for report in reports.values()))

        lines = reports[names[0]].lines

        def work(paths: list[Path] = paths, outputs: list[Path] = outputs, lines: int = lines) -> dict[str, int]:
            return clean_files(paths, outputs, Cleaner(rules, languages, typical_ratio(paths), guess), lines)

        counts = stages.run(f"clean {folder.name}.{i}", inputs, outputs, work)
        for side, output, name in zip(cleaned, outputs, names):
            path = str(output.resolve())  # other paths are relative to the description
            side.append(path)
            entries[path] = {"path": name} | counts
    return replace(split, sides=tuple(Side(code, tuple(files)) for code, files in zip(languages, cleaned)))
