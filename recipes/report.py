"""Makes the tables and pictures of an experiment from its score files.

    python -m recipes.report FILE.yaml [RUN ...] [name=value ...] [--save FILE.json] [--output FOLDER]

RUN is an output folder of the experiment or a JSON file of ``results/`` with its scores. Several RUNs are the same
models from several pre-trainings. A cell without scores stays empty. A table without any is left out, and a table of a
claim if only optional rows, such as baselines, have scores. --save writes the scores and tests to a JSON file, which
can be given as RUN, and keeps the file's other entries. recipes/README.md lists the parts of a report and the keys of
their rows.
"""

import argparse
import dataclasses
import inspect
import itertools
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting
from fairseq_xl.io.files import write_json
from recipes import example_scores, paired_tests, saved_scores
from recipes.experiment import positive
from recipes.experiment_file import ROOT, Experiment, Values
from recipes.report_cells import Cells
from recipes.score_files import entry_of, read, read_saved, value_of
from recipes.tables import draw, has_cells, mean_difference, paper_row, table

OUTPUTS, MAX_CHARACTERS = 10, 200  # outputs of a language; characters of a source


class Report(Cells):
    """The report of an experiment. For each kind of part in the file's `report`, a method part_KIND returns lines."""

    def __init__(
        self,
        experiment: Experiment,
        runs: list[Path],
        root: Path | None = None,
        folder: Path | None = None,
        claim: str = "",
    ) -> None:
        """Initializes the report.

        Args:
            root: as for `Cells`.
            folder: for pictures; without it there are none.
            claim: claim of the part that includes this report.
        """
        super().__init__(experiment, runs, root)
        self.folder = folder
        self.averages: dict[str, dict[str, list[float] | None]] = {}  # part -> row -> one value per unit, or None
        self.examples: dict[str, dict[str, example_scores.ExampleFiles]] = {}  # part -> row -> predictions
        self.omitted: dict[str, set[str]] = {}  # part -> optional rows without scores
        self.tests: dict[str, dict[str, str]] = {}  # claim -> test -> conclusion
        self.controls: dict[str, dict[str, str]] = {}  # claim -> test against a baseline or control -> conclusion
        self.missing: dict[str, list[str]] = {}  # claim -> tests without scores
        self.claim = self.default_claim = claim  # of the present part

    def texts(self) -> Iterator[str]:
        """Yields the text of each part; the claim is the heading of its first part."""
        claim = ""
        for lines in self.parts():
            text = "\n".join(lines).strip()
            if self.claim != claim and self.claim in self.experiment.claims:
                says = self.experiment.expand(self.experiment.claims[self.claim]["says"])
                text = f"## Claim {self.claim}: {says}\n\n{text}"
            claim = self.claim
            yield text

    def parts(self) -> Iterator[list[str]]:
        """Yields the lines of each part of the report."""
        return (lines for _, lines in self.titled_parts())

    def titled_parts(self, titles: Sequence[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Yields (title as in the file, lines) of each part of the report, or only of those with `titles`."""
        for content in self.experiment.content.get("report") or []:
            (kind, title), *rest = content.items()
            if titles and title not in titles:
                continue
            part = getattr(self, f"part_{kind}", None)
            if part is None:
                raise UserError(f"{self.experiment.path}: there is no part of a report called {kind!r}")
            options = dict(rest)
            self.claim = str(options.pop("claim", self.default_claim))
            for values in self.experiment.combinations(options.pop("for", {})):
                self.values = values
                try:
                    inspect.signature(part).bind(title, **options)
                except TypeError as error:
                    raise UserError(f"{self.experiment.path}: report: {kind} {title}: {error}") from error
                lines = part(title, **options)
                if lines:
                    yield str(title), lines

    def part_table(
        self,
        title: str,
        columns: str | list,
        rows: list[dict],
        caption: str = "",
        average: str | list | None = None,
        notes: dict[str, str] | None = None,
        picture: dict[str, str] | None = None,
        header: str = "{column}",
        intervals: str = "one",
    ) -> list[str]:
        """Makes a table of scores: a row per system, a column per language, and the average of the columns `average`.

        `intervals`: one, over seeds or from the file (`cell`), or both, over seeds and over test examples. `notes`:
        name and key of a last column of text. `picture`: file, title and axis of a picture of the averages. Rows with
        `paper` have figures of a paper in place of scores.
        """
        title, columns, scored = self.expand(title), self.names(columns), False
        if intervals not in ("one", "both"):
            raise UserError(f"{self.experiment.path}: {title}: intervals: {intervals}: choose one or both")
        averaged = averaged_columns(self.experiment, title, columns, average, self.values)
        lines, published, without_seeds, both = [], [], [], intervals == "both"
        self.averages[title], self.examples[title], self.omitted[title] = {}, {}, set()
        for name, row, values in self.rows(rows):
            if "paper" in row:
                split = self.experiment.expand(row.get("split", "test"), values)
                cells = paper_row(name, self.experiment.expand(row["paper"], values), columns, averaged, split)
                published += [[*cells, *[""] * len(notes or {})]] if has_cells([cells]) else []
                continue
            units = [self.units(row, values, column) for column in columns]
            terms = [units[columns.index(column)] for column in averaged]
            means = None if None in terms or not terms else list(map(statistics.mean, zip(*terms)))
            if row.get("optional") and all(column_units is None for column_units in units):
                self.omitted[title].add(name)
                continue
            if "{seed}" not in row["scores"] and any(units):
                without_seeds.append(name)
            scored |= any(units) and not row.get("optional")
            self.averages[title][name] = means if averaged else units[0]
            if "examples" in row:
                self.examples[title][name] = self.example_files(row, values, averaged or columns[:1])
            cells = [self.cell(column_units, row, values, column, both) for column_units, column in zip(units, columns)]
            cells += [self.cell(means, row, values, None, both)] if averaged else []
            for template in (notes or {}).values():
                seeded = values | {"seed": self.first_seed()}
                text = [self.cell_values(row, seeded, columns[0], key, self.runs[0]) for key in template.split()]
                cells.append(", ".join(str(scores[0]) for scores in text if scores))
            lines.append([name, *cells])
        if not has_cells(lines) or (self.claim and not scored):
            return []
        if picture:
            self.picture(self.averages[title], **picture, percent=all(row.get("percent", True) for row in rows))
        headers = [self.expand(header, column=column) for column in columns]
        mean = ["average" if averaged == columns else f"average of {', '.join(averaged)}"] if averaged else []
        shown = table([title, *headers, *mean, *(notes or {})], [*lines, *published])
        single = f" Not over pre-trainings: {', '.join(without_seeds)}." if without_seeds and len(self.runs) > 1 else ""
        return [f"{self.caption(caption)}{single}".strip(), "", *shown]

    def picture(
        self, outcomes: dict[str, list[float] | None], file: str, title: str, axis: str, percent: bool = True
    ) -> None:
        """Draws the rows of a table that have values."""
        scored = {name: values for name, values in outcomes.items() if values}
        if self.folder is not None and scored:
            self.folder.mkdir(parents=True, exist_ok=True)
            draw(scored, self.folder / self.expand(file), self.expand(title), self.expand(axis), percent)

    def part_minus(
        self, against: str, columns: list[str], caption: str = "", compared: list[dict] | None = None
    ) -> list[str]:
        """Makes a table of differences: averages of earlier tables (`columns`: titles) minus the row `against`.

        `compared`: only these rows (default: all).
        """
        against, titles = self.expand(against), [self.expand(title) for title in columns]
        titles = [title for title in titles if title in self.averages]  # without tables that the values leave out
        names = dict.fromkeys(name for title in titles for name in self.averages[title] if name != against)
        if compared:
            names = dict.fromkeys(name for name, _, _ in self.rows(compared) if name in names)
        if not all(against in self.averages[title] for title in titles):
            return []
        rows = []
        for name in names:
            pairs = [(self.averages[title].get(name), self.averages[title][against]) for title in titles]
            if all(a is None or b is None or len(a) == len(b) for a, b in pairs):
                differences = [[x - y for x, y in zip(a or (), b or ())] for a, b in pairs]
                rows.append([name, *(mean_difference(values) if values else "" for values in differences)])
        shown = [title.split(":")[0] for title in titles]
        return [self.caption(caption), "", *table([f"minus {against}", *shown], rows)] if has_cells(rows) else []

    def example_files(self, row: dict, values: Values, columns: list[str]) -> example_scores.ExampleFiles:
        """Returns the predictions of a row for test examples: `examples` is {kind: FILE, or FILE REFERENCES}."""
        ((kind, template),) = row["examples"].items()
        seeds = self.names(row.get("seeds", "seeds")) if "{seed}" in template else [""]
        runs = self.runs if "{seed}" in template else self.runs[:1]

        def files(run: Path, seed: str, column: str) -> list[Path]:
            path, *references = self.experiment.words(template, values | {"seed": seed, "column": column})
            return [run / path, *(ROOT / path for path in references)]

        units = [(run, seed) for run in runs for seed in seeds]
        paths = [[files(run, seed, column) for column in columns] for run, seed in units]
        names = [seed if len(runs) == 1 else str(i) for i, (_, seed) in enumerate(units, start=1)]
        return example_scores.ExampleFiles(self.experiment.expand(kind, values), columns, names, paths)

    def part_included(self, name: str, tables: list[str], caption: str = "") -> list[str]:
        """Makes `tables` (titles) of the included experiments `name` or `name`/…, one per pre-training seed."""
        names = [key for key in self.experiment.included if f"{key}/".startswith(f"{name}/")]
        included = [self.experiment.included[key] for key in names]
        if not included:
            raise UserError(f"{self.experiment.path}: report: no included experiment is called {name!r}")
        titles = [str(next(iter(part.values()))) for part in included[0].content.get("report") or []]
        unknown = [title for title in tables if title not in titles]
        if unknown:
            raise UserError(f"{self.experiment.path}: report: {name} has no part with the title {unknown[0]!r}")
        root, outer = self.runs[0], self.experiment.output
        runs = [root / experiment.output.relative_to(outer) for experiment in included]
        report = Report(included[0], runs, root, self.folder and self.folder / name, self.claim)
        parts = [lines for _, lines in report.titled_parts(tables)]
        self.averages |= report.averages
        self.examples |= report.examples
        self.omitted |= report.omitted
        self.scores |= report.scores
        return [self.caption(caption), "", *itertools.chain(*([*lines, ""] for lines in parts))] if parts else []

    def part_tests(
        self,
        title: str,
        columns: list[str],
        greater: list[list[str]],
        controls: Sequence[list[str]] = (),
        caption: str = "",
    ) -> list[str]:
        """Makes a table of tests of the difference of two systems in earlier tables (`columns`: titles).

        `greater`: pairs of rows, by name; the claim says that the first row is better. `controls`: pairs whose second
        row is a baseline or control. Pairs that no table has are left out. Scores are averages, paired by seed
        (`paired_tests.paired_t_test`); a row without seeds, such as a baseline, has the same score for all seeds.
        """
        title, lines = self.expand(title), []
        tested = [
            *((pair, ">", paired_tests.CLAIM, self.tests) for pair in greater),
            *((pair, "−", paired_tests.CONTROL, self.controls) for pair in controls),
        ]
        for pair, sign, conclusions, outcomes in tested:
            first, second = map(self.expand, pair)
            for table_title in map(self.expand, columns):
                compared = f"{first} {sign} {second}"
                name = f"{compared} | {table_title}"
                test = self.tested(f"{title} | {name}", table_title, first, second)
                if test is not None:
                    difference, conclusion = paired_tests.cells(test, conclusions)
                    over_examples = paired_tests.over_examples(self.scores[f"{title} | {name}"]["over_examples"])
                    lines.append([compared, table_title, difference, over_examples, conclusion])
                    outcomes.setdefault(self.claim, {})[name] = conclusions[1 - test.sign]
                elif {first, second} <= {*self.averages.get(table_title, ()), *self.omitted.get(table_title, ())}:
                    self.missing.setdefault(self.claim, []).append(name)
        header = (
            "table|difference (95 % interval over seeds)|p over test examples|conclusion (detectable with 80 % power)"
        )
        return [self.caption(caption), "", *table([title, *header.split("|")], lines)] if lines else []

    def tested(self, entry: str, table_title: str, first: str, second: str) -> paired_tests.PairedTest | None:
        """Tests two rows of a table and adds the result to `scores`; None if a row is absent or lacks a score."""
        first_scores, second_scores = (self.averages.get(table_title, {}).get(name) for name in (first, second))
        if first_scores is None or second_scores is None:
            return None
        pair = paired_tests.broadcast(first_scores, second_scores)
        if len(pair[0]) != len(pair[1]):
            raise UserError(f"{table_title}: {first} has {len(pair[0])} scores and {second} {len(pair[1])}: no pairs")
        test = paired_tests.paired_t_test(*pair)
        examples = self.examples.get(table_title, {})
        over_examples = example_scores.compare(examples.get(first), examples.get(second))
        if not over_examples and self.runs[0].is_file():
            saved = read_saved(self.runs[0]).get(entry) or {}
            if saved.get("differences") == test.differences:  # of the same seeds
                over_examples = saved.get("over_examples") or {}
        self.scores[entry] = dataclasses.asdict(test) | {"over_examples": over_examples}
        return test

    def part_paired(
        self, title: str, columns: str | list, rows: list[dict], references: str, caption: str = ""
    ) -> list[str]:
        """Makes a table of the BLEU differences of all pairs of systems with p of sacreBLEU's paired bootstrap.

        `file` names hypotheses. Without references or with fewer than two systems there is no table. If the run is a
        JSON file, the table has the tests that --save wrote to it.
        """
        from fairseq_xl.evaluation.bleu import paired, tokenizer_name
        from fairseq_xl.io.lines import read_lines

        title, columns, pair_rows = self.expand(title), self.names(columns), {}
        saved = read_saved(self.runs[0]) if self.runs[0].is_file() else None
        for column in columns:
            path = Path(self.expand(references, column=column))
            lines = read_lines(path) if path.is_file() else None
            files = [
                (name, self.experiment.expand(row["file"], row_values | {"column": column}))
                for name, row, row_values in self.rows(rows)
            ]
            for (baseline, baseline_file), (name, file) in itertools.combinations(files, 2):
                entry = f"{file} against {baseline_file}"
                systems = [self.runs[0] / file, self.runs[0] / baseline_file]
                test = None
                if saved is not None:
                    test = saved.get(entry)
                elif lines is not None and all(system.is_file() for system in systems):
                    test = paired(read_lines(systems[0]), read_lines(systems[1]), lines, tokenizer_name(column))
                if test:
                    self.scores[entry] = test
                    cells = pair_rows.setdefault((name, baseline), [f"{name} − {baseline}", *[""] * len(columns)])
                    cells[1 + columns.index(column)] = f"{test['difference']:+.2f} (p = {test['p']:.3f})"
        return [self.caption(caption, title), "", *table([title, *columns], pair_rows.values())] if pair_rows else []

    def part_tokens(self, title: str, rows: list[dict], caption: str = "") -> list[str]:
        """Makes a table of each training's updates, tokens per update and tokens, from its train.log (`file`)."""
        lines = []
        for name, row, values in self.rows(rows):
            path = self.runs[0] / self.experiment.expand(row["file"], values)
            totals = read(path)
            if totals:
                self.scores[entry_of(path.relative_to(self.root or self.runs[0]))] = totals
                updates, tokens = totals["updates"], totals["tokens"]
                lines.append([name, f"{updates:,}", f"{tokens / updates:,.0f}", f"{tokens / 1e6:.2f}"])
        header = [title, "updates", "tokens per update", "million tokens"]
        return [self.caption(caption, title), "", *table(header, lines)] if lines else []

    def part_outputs(
        self, caption: str, columns: str | list, rows: list[dict], source: str, reference: str
    ) -> list[str]:
        """Lists the outputs of all systems with source and reference, for test lines at equal distances."""
        from fairseq_xl.evaluation.bleu import read_generated
        from fairseq_xl.io.lines import read_lines

        lines = []
        for column in self.names(columns):
            files = [Path(self.expand(template, column=column)) for template in (source, reference)]
            seed = self.first_seed()
            written = {}
            for name, row, row_values in self.rows(rows):
                path = self.runs[0] / self.experiment.expand(row["file"], row_values | {"column": column, "seed": seed})
                if path.is_file():
                    written[name] = read_generated(path)[0]
            if not written or not all(file.is_file() for file in files):
                continue
            sources, references = map(read_lines, files)
            lines += ["", self.caption(caption, "Outputs", column=column, seed=seed)]
            for line in (i * len(sources) // OUTPUTS for i in range(OUTPUTS)):
                long = len(sources[line]) > MAX_CHARACTERS
                shown = f"{sources[line][:MAX_CHARACTERS]}…" if long else sources[line]
                texts = {"source": shown, "reference": references[line]}
                texts |= {name: hypotheses[line] for name, hypotheses in written.items()}
                lines += ["", f"{line + 1}."] + [f"   - {name}: {text}" for name, text in texts.items()]
        return lines[1:]


def averaged_columns(
    experiment: Experiment, title: str, columns: str | list, average: str | list | None, values: Values
) -> list[str]:
    """Lists the columns that a table averages; raises `UserError` for one that it does not have."""
    averaged = experiment.items(average, values) if average else []
    if unknown := set(averaged).difference(experiment.items(columns, values)):
        raise UserError(f"{experiment.path}: {title}: average: {min(unknown)} is not a column")
    return averaged


def check(experiment: Experiment) -> None:
    """Raises `UserError` if a table of the report averages a column that it does not have."""
    for part in experiment.content.get("report") or []:
        for values in experiment.combinations(part.get("for", {})) if "average" in part else ():
            title = experiment.expand(part["table"], values)
            averaged_columns(experiment, title, part["columns"], part["average"], values)


def write(
    experiment: Experiment, runs: list[Path] | None = None, save: Path | None = None, output: Path | None = None
) -> None:
    """Prints the report, and the experiment's last line.

    Args:
        save: JSON file to add the scores to.
        output: folder for ``report.md``, ``claims.json`` and pictures (default: the run if it is a folder).

    Raises:
        UserError: a JSON file has no scores, or some of other settings; a margin of the experiment is not kept.
    """
    if save is not None:
        saved_scores.read_scores(save)
    runs = runs or [experiment.output]
    for run in filter(Path.is_file, runs):
        saved_scores.check_settings(run, experiment)
    output = output or (runs[0] if runs[0].is_dir() else None)
    report = Report(experiment, runs, folder=output)
    texts = list(report.texts())
    text = "\n\n".join([*summary(experiment, report.tests), *texts])
    if save is not None:
        saved_scores.add(save, report.scores, experiment, runs[0])
    state = saved_scores.state_of_claims(experiment, runs[0], report.tests, report.controls, report.missing)
    if text:
        sys.stdout.write(f"{text}\n")
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        if text:
            (output / "report.md").write_text(f"{text}\n", encoding="utf-8")
        if experiment.claims:
            write_json(output / "claims.json", state)

    def with_scores(text: str) -> str:
        """Replaces [FILE KEY FORMAT] by the score."""

        def value(match: re.Match) -> str:
            content = state if match[1] == "claims.json" else read(runs[0] / match[1])
            return value_of(content, runs[0] / match[1], *match.groups()[1:])

        return re.sub(r"\[(\S+) (\S+?)( \+?\.\df)?\]", value, text)

    if last := experiment.content.get("last line"):
        sys.stdout.write(f"{with_scores(last)}\n")
    for margin in experiment.content.get("margins", []) if experiment.has_its_values else []:
        try:
            larger, smaller, difference = map(float, re.split(r" > | \+ ", with_scores(margin)))
        except ValueError:
            raise UserError(
                f"{experiment.path}: margin {margin!r}: expected [FILE KEY] > [FILE KEY] + NUMBER"
            ) from None
        if larger <= smaller + difference:
            raise UserError(f"{experiment.path}: the margin {margin} is not kept: {with_scores(margin)}")


def summary(experiment: Experiment, tests: dict[str, dict[str, str]]) -> list[str]:
    """Makes a table of the counts of each claim's tests by conclusion, without those of baselines."""
    rows = []
    for claim, conclusions in tests.items():
        counts = Counter(conclusions.values())
        if claim in experiment.claims:
            says = experiment.expand(experiment.claims[claim]["says"])
            rows.append([claim, says, *(counts[conclusion] for conclusion in paired_tests.CLAIM)])
    return ["\n".join(table(["claim", "says", *paired_tests.CLAIM], rows))] if rows else []


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.report", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", help="the experiment's YAML file")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RUN|name=value",
        help="output folders, JSON files of results/, and values in place of the file's",
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE.json", help="add the scores and tests of the tables to this file"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="for report.md, claims.json and pictures (default: RUN if it is a folder)",
    )
    parser.add_argument("--updates", type=positive, help="as in the experiment, if it was run with it")
    options = parser.parse_args(arguments)
    error_reporting.install()
    values = [word for word in options.words if "=" in word]
    runs = [Path(word) for word in options.words if "=" not in word]
    missing = [path for path in runs if not path.exists()]
    if missing:
        raise UserError(f"{missing[0]}: no such file or folder")
    output = runs[0] if runs and runs[0].is_dir() else None
    if options.save is not None and len(runs) > 1:
        raise UserError(f"--save {options.save}: the scores of {len(runs)} pre-trainings do not fit into one file")
    experiment = Experiment(options.file, values, output, options.updates)
    write(experiment, runs, options.save, options.output)


if __name__ == "__main__":
    main()
