"""Runs the steps of an experiment, then writes its tables and pictures.

    python -m recipes.experiment FILE.yaml [name=value ...] [--only STEP,STEP] [--updates N] [--jobs N] [--list]

FILE.yaml holds values, steps and a report; recipes/README.md describes its keys. A finished step is skipped. A step
whose commands or input files have changed since it began is refused.
"""

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fairseq_xl import error_reporting
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import replacing, write_json
from preprocess.config import read_config
from recipes import corpus, settings
from recipes.progress import Progress
from recipes.settings import RECORD

Values = dict[str, Any]  # name -> text, number, list or mapping; "model.start" -> field of a loop variable
ROOT = Path(__file__).resolve().parent.parent
PLACEHOLDER = re.compile(r"\{([\w-]+(?:\.[\w-]+)?)(?::(words|each))?\}")
KEYS = {"about", "base", "output", "values", "steps", "report", "last line"}
STEP_KEYS = {"for", "where", "folder", "run", "stdout", "reads", "expects", "only if needed"}
DESCRIBED = {"preprocess", "recipes.test_set"}  # modules whose first argument is a corpus description
CODE = (".sh", ".py")  # scripts are not inputs: a changed comment would refuse a finished step
STOPPED = os.EX_TEMPFAIL  # exit status of a training that a signal stopped (recipes/launch.py)


@dataclass(eq=False)
class Step:
    """One step for one combination of values: commands that fill a folder."""

    name: str  # key in the file and values, joined by "/"
    folder: Path
    commands: list[list[str]]
    reads: list[str]  # paths of inputs beyond those in the commands
    expects: list[str]  # files and folders that must exist before any step begins, FOLDER:FOLDER/FILE
    stdout: str | None  # file of the folder that receives the output of the last command
    only_if_needed: bool
    needs: list["Step"] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """Words and parts of words that may be paths: DATA and MODULE of `de=DATA:MODULE`."""
        words = [*(word for command in self.commands for word in command), *self.reads]
        return [part for word in words for part in settings.parts(word) if "/" in part]

    @property
    def absolute_paths(self) -> list[Path]:
        return [Path(os.path.abspath(ROOT / path)) for path in self.paths]

    def described_texts(self) -> list[str]:
        """The text files that the corpus descriptions in the commands name."""
        descriptions = [
            command[3] for command in self.commands if command[:2] == ["python", "-m"] and DESCRIBED & {*command}
        ]
        configs = [read_config(ROOT / path)[0] for path in descriptions if (ROOT / path).is_file()]
        return [str(config.root / name) for config in configs for name in config.files()]


class Experiment:
    """The content of an experiment's file; values of the command line replace the file's.

    Raises `UserError` for a file that is not an experiment, and for an unknown or wrong value.
    """

    def __init__(
        self, path: Any, overrides: Sequence[str] = (), output: Any = None, updates: int | None = None
    ) -> None:
        self.path, self.content = path, read_yaml(path)
        self.values = dict(self.content.get("values") or {})
        for override in overrides:
            self._override(override)
        folder = self.expand(str(output or self.content.get("output") or f"runs/{Path(path).stem}"))
        self.output = Path(folder) if output else ROOT / folder
        self.output = Path(os.path.abspath(self.output))
        if re.search("[=:,]", str(self.output)):
            raise UserError(f"--output {self.output}: a path without '=', ':' and ',' is needed")
        self.values |= {"output": str(self.output), "updates": f"--max-update {updates}" if updates else ""}
        self.steps = self._steps()

    def _override(self, override: str) -> None:
        name, equals, text = override.partition("=")
        if not equals or not text or name not in self.values:
            raise UserError(f"{override}: expected name=value, with one of the names {', '.join(self.values)}")
        default = self.values[name]
        if isinstance(default, (list, dict)):
            names = names_of(name, text)
            if any(not one or one != one.strip() for one in names):
                raise UserError(f"{override}: expected names joined by commas")
            numbers = isinstance(default, list) and default and all(isinstance(one, int) for one in default)
            if numbers and not all(re.fullmatch("[1-9][0-9]*", one) for one in names):
                raise UserError(f"{override}: whole numbers above 0 are needed")
            unknown = [one for one in names if isinstance(default, dict) and one not in default]
            if unknown:
                raise UserError(f"{override}: {unknown[0]} is not among {', '.join(default)}")
            self.values[name] = {one: default[one] for one in names} if isinstance(default, dict) else names
        elif isinstance(default, int) and not re.fullmatch("[1-9][0-9]*", text):
            raise UserError(f"{override}: a whole number above 0 is needed")
        else:
            self.values[name] = text

    def expand(self, template: str, values: Values | None = None, inside: tuple[str, ...] = ()) -> str:
        """Replaces each {name} by its value: a list by its items joined by commas, a mapping by its keys."""

        def replaced(match: re.Match) -> str:
            value = self._value(match[1], values, template, inside)
            items = value if isinstance(value, (list, dict)) else [value]
            return ",".join(self.expand(str(item), values, (*inside, match[1])) for item in items)

        return PLACEHOLDER.sub(replaced, template)

    def _value(self, name: str, values: Values | None, template: str, inside: tuple[str, ...] = ()) -> Any:
        values = self.values if values is None else values
        if name not in values or name in inside:
            raise UserError(f"{self.path}: {template!r}: there is no value {name!r}")
        return values[name]

    def words(self, template: str, values: Values) -> list[str]:
        """Splits a command line into arguments.

        {name} expands within its argument. An argument {name:words} expands to the words of the value, or to nothing.
        An argument with {name:each} is repeated for each item of a list.
        """
        found = []
        for word in shlex.split(template):
            whole = PLACEHOLDER.fullmatch(word)
            each = next((match for match in PLACEHOLDER.finditer(word) if match[2] == "each"), None)
            if whole and whole[2] == "words":
                found += self.words(str(self._value(whole[1], values, template)), values)
            elif each:
                items = self.items(each[1], values)
                found += [self.expand(word.replace(each[0], item), values) for item in items]
            else:
                found.append(self.expand(word, values))
        return found

    def combinations(self, loops: dict[str, Any], values: Values | None = None) -> Iterator[Values]:
        """Yields the values with each combination of the loop variables.

        A loop over a mapping sets {variable} to the key and {variable.field} to the fields of the entry.
        """
        values = self.values if values is None else values
        if not loops:
            yield values
            return
        (name, of), *rest = loops.items()
        entries = self._value(of, values, f"{name}: {of}") if isinstance(of, str) else None
        for item in self.items(of, values):
            fields = (entries[item] or {}) if isinstance(entries, dict) else {}
            more = {f"{name}.{key}": value for key, value in fields.items()}
            yield from self.combinations(dict(rest), values | more | {name: item})

    def items(self, of: str | list | dict, values: Values | None = None) -> list[str]:
        """The items of a list, or of the value with this name: a list, the keys of a mapping, or text with commas.

        {first: NUMBERS, of: NAMES} has one item for each number N: the first N names, joined by commas.
        Raises `UserError` for an item that occurs twice.
        """
        if isinstance(of, dict):
            names, numbers = (self.items(of[key], values) for key in ("of", "first"))
            for number in numbers:
                if not number.isdecimal() or not 1 <= int(number) <= len(names):
                    raise UserError(f"{of['first']}: {number}: expected numbers from 1 to {len(names)} ({of['of']})")
            return [",".join(names[: int(number)]) for number in numbers]
        template = ",".join(map(str, of)) if isinstance(of, list) else f"{{{of}}}"
        option = of if isinstance(of, str) else "the list"
        return [item for item in names_of(option, self.expand(template, values)) if item]

    def _steps(self) -> list[Step]:
        steps = {}
        for key, content in self.content["steps"].items():
            unknown = content.keys() - STEP_KEYS
            if unknown or "run" not in content:
                raise UserError(f"{self.path}: step {key}: " + (f"unknown key {min(unknown)}" if unknown else "no run"))
            loops = content.get("for") or {}
            for values in self.combinations(loops):
                if content.get("where", "output") not in values:
                    continue
                name = "/".join([key, *(values[variable] for variable in loops)])
                folder = self.output / self.expand(content.get("folder", name), values)
                if folder in steps:
                    raise UserError(f"{self.path}: the steps {name} and {steps[folder].name} have the same folder")
                values = values | {"folder": str(folder)}
                commands = content["run"] if isinstance(content["run"], list) else [content["run"]]
                reads, expects = (
                    [word for path in content.get(key, []) for word in self.words(path, values)]
                    for key in ("reads", "expects")
                )
                steps[folder] = Step(
                    name,
                    folder,
                    [self.words(command, values) for command in commands],
                    reads,
                    expects,
                    content.get("stdout"),
                    content.get("only if needed", False),
                )
        corpora = {
            path: step
            for step in steps.values()
            for path in step.absolute_paths
            if path in corpus.MADE and any("recipes.corpus" in command for command in step.commands)
        }
        makers = corpora | steps
        for step in steps.values():
            for path in step.absolute_paths:
                made = next((makers[folder] for folder in (path, *path.parents) if folder in makers), step)
                if made is not step and made not in step.needs:
                    step.needs.append(made)
        return list(steps.values())

    def chosen(self, names: list[str]) -> list[Step]:
        """Returns the steps to run, each after those that it needs: all, or those whose names begin with `names`.

        Steps marked "only if needed" run if another step needs them or if `names` has them.
        """
        wanted = [step for step in self.steps if any(f"{step.name}/".startswith(f"{name}/") for name in names)]
        for name in names:
            if not any(f"{step.name}/".startswith(f"{name}/") for step in self.steps) and name != "report":
                known = dict.fromkeys(step.name.split("/")[0] for step in self.steps)
                raise UserError(f"--only {name}: there is no such step; expected {', '.join([*known, 'report'])}")
        if not names:
            wanted = [step for step in self.steps if not step.only_if_needed]
        ordered: list[Step] = []

        def add(step: Step, inside: tuple[Step, ...] = ()) -> None:
            if step in inside:
                names = ", ".join(one.name for one in inside[inside.index(step) :])
                raise UserError(f"{self.path}: these steps read from each other's folders: {names}")
            if step not in ordered:
                for needed in step.needs:
                    add(needed, (*inside, step))
                ordered.append(step)

        for step in wanted:
            add(step)
        return ordered


def read_yaml(path: Any) -> dict[str, Any]:
    """Reads an experiment's file as a mapping. Raises `UserError` if it is not an experiment."""
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(content, dict) or not isinstance(content.get("steps"), dict) or content.keys() - KEYS:
        raise UserError(f"{path}: expected an experiment, a mapping with steps and any of {', '.join(sorted(KEYS))}")
    if base := content.pop("base", None):
        content = merged(read_yaml(Path(path).parent / base), content, path)
    return content


def merged(base: dict[str, Any], content: dict[str, Any], path: Any) -> dict[str, Any]:
    """Merges two experiments: values and steps of `content` replace those of `base` by name, and null removes one.

    In the report, text stands for the part of `base` with this title. Raises `UserError` if there is none.
    """
    parts = {next(iter(part.values())): part for part in base.get("report") or []}
    unknown = [part for part in content.get("report") or [] if isinstance(part, str) and part not in parts]
    if unknown:
        raise UserError(f"{path}: report: {unknown[0]}: expected one of the titles {', '.join(map(repr, parts))}")
    result = base | content
    for key in ("values", "steps"):
        both = (base.get(key) or {}) | (content.get(key) or {})
        result[key] = {name: value for name, value in both.items() if value is not None}
    result["report"] = [parts[part] if isinstance(part, str) else part for part in result.get("report") or []]
    return result


def check_files(steps: list[Step]) -> None:
    """Raises `UserError` if a step expects a file or folder that does not exist and that no needed step makes.

    FOLDER:FOLDER/FILE may be in any of the folders. `recipes.corpus` makes some corpora.
    """
    for step in steps:
        made = {*(needed.folder for needed in step.needs), *corpus.MADE}
        for path in step.expects:
            folders, _, name = path.rpartition("/")
            places = [ROOT / folder / name for folder in folders.split(":")]
            if not any(stored(place).exists() or made & {place, *place.parents} for place in places):
                where = f" in {folders.replace(':', ' or ')}" if folders else ""
                raise UserError(f"step {step.name}: {name}: no such file{where}")


class Run:
    """Runs the steps of an experiment, several at a time, until one fails or a signal arrives."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.begin = experiment, time.monotonic()
        self.alone = True  # whether steps run one at a time, which shows the progress of trainings
        self.digests = settings.Digests()
        self.processes: set[subprocess.Popen] = set()
        self.lock = threading.RLock()  # reentrant: the signal handler acquires it too
        self.ending = False  # whether no further command may start
        self.signal: int | None = None  # the signal that ended the run

    def run_steps(self, steps: list[Step], jobs: int) -> None:
        """Runs steps in order, `jobs` at a time. Raises `UserError` and `Stopped`."""
        self.alone = jobs == 1
        waiting, finished = list(steps), []
        running: dict[Future, Step] = {}
        previous = {number: signal.signal(number, self.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with ThreadPoolExecutor(jobs) as pool:
                while waiting or running:
                    ready = [step for step in waiting if all(need in finished for need in step.needs)]
                    for step in ready[: jobs - len(running)]:
                        waiting.remove(step)
                        running[pool.submit(self.run_step, step)] = step
                    for future in wait(running, return_when=FIRST_COMPLETED)[0]:
                        finished.append(running.pop(future))
                        try:
                            future.result()
                        except BaseException:
                            self.end(signal.SIGTERM)
                            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def on_signal(self, number: int, _: Any) -> None:
        self.signal = number
        self.end(number)

    def end(self, number: int) -> None:
        """Signals the process group of every running command: trainings save a checkpoint and end."""
        with self.lock:
            self.ending = True
            for process in self.processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def run_step(self, step: Step) -> None:
        """Runs the commands of one step unless it is finished and has its results. Raises `UserError` and `Stopped`."""
        record = {"commands": self.relative(step.commands), "files": self.inputs(step)}
        try:
            before = settings.check(step.folder, RECORD, record, "choose another --output")
        except UserError as error:
            raise UserError(str(error).replace("{output}", str(self.experiment.output))) from None
        if before.get("finished") and all((step.folder / name).exists() for name in before.get("results") or []):
            return
        step.folder.mkdir(parents=True, exist_ok=True)
        write_json(step.folder / RECORD, record)
        log = step.folder / "out.log"
        sys.stderr.write(f"--- {self.elapsed()} {step.name}: {log}\n")
        for number, command in enumerate(step.commands, start=1):
            kept = step.stdout if number == len(step.commands) else None
            with replacing(step.folder / kept) if kept else contextlib.nullcontext() as stdout:
                self.run_command(step, command, log, stdout)
        write_json(step.folder / RECORD, record | {"finished": True, "results": self.results(step)})

    def elapsed(self) -> str:
        """Minutes and seconds since the run began."""
        seconds = int(time.monotonic() - self.begin)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def relative(self, commands: list[list[str]]) -> list[list[str]]:
        """Commands with the output folder replaced by {output}: the folder may be moved."""
        return [[word.replace(str(self.experiment.output), "{output}") for word in command] for command in commands]

    def inputs(self, step: Step) -> dict[str, Any]:
        """Path -> digest of the existing files and folders in a step's commands, except those in its own folder."""
        found = {}
        for path in dict.fromkeys([*step.paths, *step.described_texts()]):
            absolute = Path(os.path.abspath(ROOT / path))
            own = step.folder in (absolute, *absolute.parents)
            if os.path.exists(absolute) and not own and not path.endswith(CODE):
                found[self.relative([[path]])[0][0]] = self.digests.of(absolute)
        return found

    def results(self, step: Step) -> list[str]:
        """Names of the files in a step's folder but logs, records and those of other steps."""
        others = {record.parent for record in step.folder.glob(f"*/**/{RECORD}")}
        files = [file for file in sorted(step.folder.rglob("*")) if file.is_file() and not others & {*file.parents}]
        return [file.relative_to(step.folder).as_posix() for file in files if settings.is_result(file)]

    def run_command(self, step: Step, command: list[str], log: Path, stdout: Any) -> None:
        """Runs one command and appends its output to the log. Raises `UserError` if it fails, `Stopped` if it stops."""
        program = {"python": [sys.executable], "fairseq-xl": [sys.executable, "-m", "fairseq_xl"]}
        words = [*program.get(command[0], command[:1]), *command[1:]]
        paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        read_end, write_end = os.pipe()  # the writing end stays open until the command and its children end
        with open(log, "a", encoding="utf-8") as file, open(read_end, "rb") as ended, open(write_end, "wb") as held:
            start = file.tell()
            with self.lock:
                if self.ending:
                    raise Stopped
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout or file,
                    stderr=file,
                    cwd=ROOT,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                    start_new_session=True,
                    pass_fds=[write_end],
                )
                self.processes.add(process)
            held.close()
            status = self.wait(process, Progress(log, start))
            ended.read()  # on a signal a shell ends before the training that it runs
        with self.lock:
            self.processes.remove(process)
        if status and (self.ending or status == STOPPED):
            raise Stopped
        if status:
            raise UserError(f"step {step.name} failed: {reason(log, start)} (see {log})")

    def wait(self, process: subprocess.Popen, progress: Progress) -> int:
        """Waits for the end of a command and returns its exit status."""
        while self.alone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
            progress.show()
            if process.returncode is not None:
                break
        return process.wait()


class Stopped(Exception):
    """The experiment was stopped by a signal, or one of its trainings was."""


def reason(log: Path, start: int) -> str:
    """The error that a command ended with and what follows it, or else the last lines of its output.

    The output begins at byte `start`.
    """
    with open(log, "rb") as file:
        file.seek(start)
        text = file.read().decode("utf-8", "replace")
    _, found, end = text.rpartition("fairseq_xl: error: ")
    lines = end.strip().splitlines()
    return " / ".join(lines if found else lines[-3:]) or "it printed nothing"


def show(steps: list[Step]) -> None:
    """Prints the commands of steps."""
    for step in steps:
        sys.stdout.write(f"{step.name}\n" + "".join(f"    {shlex.join(command)}\n" for command in step.commands))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m recipes.experiment", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", help="the experiment's YAML file")
    parser.add_argument("values", nargs="*", metavar="name=value", help="in place of a value of the file: seeds=1,2")
    parser.add_argument("--output", help="folder of all results (default: the file's)")
    parser.add_argument(
        "--only",
        default="",
        metavar="STEP,STEP",
        help="these steps, and those that they need; no report unless it is named",
    )
    parser.add_argument("--updates", type=positive, help="train every model for N updates only, to try things out")
    parser.add_argument("--jobs", type=positive, default=1, help="steps that run at the same time (default: 1)")
    parser.add_argument("--list", action="store_true", help="print the steps and their commands, run nothing")
    options = parser.parse_intermixed_args(arguments)
    error_reporting.install()
    experiment = Experiment(options.file, options.values, options.output, options.updates)
    only = [name for name in options.only.split(",") if name]
    steps = experiment.chosen(only)
    if options.list:
        show(steps)
        return
    if options.jobs > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    check_files(steps)
    run = Run(experiment)
    try:
        run.run_steps(steps, options.jobs)
    except Stopped:
        sys.stderr.write("stopped: run the same command to continue\n")
        sys.exit(128 + run.signal if run.signal else STOPPED)
    sys.stderr.write(f"--- {run.elapsed()} done: {experiment.output}\n")
    if not only or "report" in only:
        from recipes import report

        report.write(experiment)


def positive(text: str) -> int:
    """Parses a whole number above 0."""
    if not re.fullmatch("[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text}: a whole number above 0 is needed")
    return int(text)


if __name__ == "__main__":
    main()
