"""Reads an experiment's YAML file: values, steps with their commands, and the parts of the report."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError, names_of
from fairseq_xl.io.compressed import stored
from fairseq_xl.io.files import FORMATS
from fairseq_xl.io.yaml_files import load
from preprocess.config import read_config
from recipes import corpus, settings

Values = dict[str, Any]  # name -> text, number, list or mapping; "model.start" -> field of a loop variable
ROOT = Path(__file__).resolve().parent.parent
PLACEHOLDER = re.compile(r"\{([\w-]+(?:\.[\w-]+)?)(?::(words|each))?\}")
KEYS = {"about", "base", "output", "values", "steps", "include", "claims", "report", "last line", "margins"}
INCLUDE_KEYS = {"file", "for", "folder", "values"}
STEP_KEYS = {"for", "where", "folder", "run", "stdout", "reads", "expects", "needs", "only if needed", "renew"}
CODE = (".sh", ".py")  # scripts are no inputs: a changed comment must not make a run refuse a finished step
#: commands whose next word is a corpus description
DESCRIBED = (["fairseq-xl", "data", "prepare"], ["python", "-m", "recipes.test_set"])


@dataclass(eq=False)
class Step:
    """One step for one combination of values: commands that fill a folder."""

    name: str  # key in the file, and values of loop variables, joined by "/"
    folder: Path
    commands: list[list[str]]
    reads: list[str]  # paths of inputs beyond those in the commands
    expects: list[str]  # files and folders that must exist before any step begins, FOLDER:FOLDER/FILE
    stdout: str | None  # file of the folder that receives the output of the last command
    only_if_needed: bool
    renew: bool  # whether it is run again, in an empty folder, if its commands or inputs have changed
    output: Path  # output folder of the experiment, or of the one that includes it
    required_steps: list["Step"] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """Arguments that may be paths, and the paths inside arguments such as `de=DATA:MODULE`."""
        words = [*(word for command in self.commands for word in command), *self.reads]
        return [part for word in words for part in settings.parts(word) if "/" in part]

    def record(self, digests: settings.Digests, prefix: str = "") -> settings.Record:
        """Returns the commands and the digests of the input files and folders that exist outside the step's folder.

        The output folder is written as {output}: it may be moved. `prefix`: prefix of the paths to include.
        """

        def relative(word: str) -> str:
            return word.replace(str(self.output), "{output}")

        files = {}
        for path in dict.fromkeys([*self.paths, *self.described_texts()]):
            absolute = Path(os.path.abspath(ROOT / path))
            is_inside = self.folder in (absolute, *absolute.parents)
            if path.startswith(prefix) and os.path.exists(absolute) and not is_inside and not path.endswith(CODE):
                files[relative(path)] = digests.of(absolute)
        commands = [list(map(relative, command)) for command in self.commands]
        return {"format": FORMATS["record of settings"], "commands": commands, "files": files}

    @property
    def absolute_paths(self) -> list[Path]:
        return [Path(os.path.abspath(ROOT / path)) for path in self.paths]

    def described_texts(self) -> list[str]:
        """Lists the text files of the corpus descriptions that the commands read."""
        descriptions = [command[3] for command in self.commands if command[:3] in DESCRIBED]
        configs = [read_config(ROOT / path)[0] for path in descriptions if (ROOT / path).is_file()]
        return [str(config.root / name) for config in configs for name in config.files()]


class Experiment:
    """The content of an experiment's file, in which values of the command line replace the file's.

    Raises `UserError` for a file that is not an experiment, and for an unknown or wrong value.
    """

    def __init__(
        self, path: Any, overrides: Sequence[str] = (), output: Any = None, updates: int | None = None
    ) -> None:
        self.path, self.content = path, read_yaml(path)
        self.has_its_values = not overrides and updates is None  # none of the command line
        self.values = dict(self.content.get("values") or {})
        for override in overrides:
            self._override(override)
        folder = self.expand(str(output or self.content.get("output") or f"runs/{Path(path).stem}"))
        self.output = Path(folder) if output else ROOT / folder
        self.output = Path(os.path.abspath(self.output))
        if re.search("[=:,]", str(self.output)):
            raise UserError(f"--output {self.output}: a path without '=', ':' and ',' is needed")
        self.values |= {"output": str(self.output), "updates": f"--max-update {updates}" if updates else ""}
        self.included = dict(self._included(updates))
        self.steps = self._steps()
        self.claims: dict[str, Values] = {}
        for name, claim in (self.content.get("claims") or {}).items():
            if not isinstance(claim, dict) or claim.keys() != {"says", "steps"}:
                raise UserError(f"{path}: claim {name}: expected says and steps")
            self.claims[str(name)] = claim

    def _override(self, override: str) -> None:
        name, equals, text = override.partition("=")
        if not equals or name not in self.values or not (text or isinstance(self.values[name], str)):
            raise UserError(f"{override}: expected name=value, with one of the names {', '.join(self.values)}")
        default = self.values[name]
        if isinstance(default, (list, dict)):
            names = names_of(name, text)
            integers = isinstance(default, list) and default and all(isinstance(item, int) for item in default)
            if integers and not all(re.fullmatch("[1-9][0-9]*", item) for item in names):
                raise UserError(f"{override}: whole numbers above 0 are needed")
            unknown = [item for item in names if isinstance(default, dict) and item not in default]
            if unknown:
                raise UserError(f"{override}: {unknown[0]} is not among {', '.join(default)}")
            self.values[name] = {item: default[item] for item in names} if isinstance(default, dict) else names
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
        arguments = []
        for word in shlex.split(template):
            whole = PLACEHOLDER.fullmatch(word)
            repeated = next((match for match in PLACEHOLDER.finditer(word) if match[2] == "each"), None)
            if whole and whole[2] == "words":
                arguments += self.words(str(self._value(whole[1], values, template)), values)
            elif repeated:
                items = self.items(repeated[1], values)
                arguments += [self.expand(word.replace(repeated[0], item), values) for item in items]
            else:
                arguments.append(self.expand(word, values))
        return arguments

    def combinations(self, loops: dict[str, Any], values: Values | None = None) -> Iterator[Values]:
        """Yields the values with each combination of the loop variables.

        A loop over a mapping sets {variable} to the key and {variable.field} to the fields of the entry. A loop over
        the first N names sets {variable.number} to N.
        """
        values = self.values if values is None else values
        if not loops:
            yield values
            return
        (name, of), *rest = loops.items()
        entries = self._value(of, values, f"{name}: {of}") if isinstance(of, str) else None
        for item in self.items(of, values):
            fields = (entries[item] or {}) if isinstance(entries, dict) else {}
            if isinstance(of, dict):
                fields = {"number": str(item.count(",") + 1)}
            variables = {f"{name}.{key}": value for key, value in fields.items()}
            yield from self.combinations(dict(rest), values | variables | {name: item})

    def items(self, of: str | list | dict, values: Values | None = None) -> list[str]:
        """Lists the items of a list, or of the value with this name: a list, the keys of a mapping, text with commas.

        {first: NUMBERS, of: NAMES} has one item for each number N: the first N names, joined by commas.
        Raises `UserError` for an item that occurs twice.
        """
        if isinstance(of, dict):
            names, counts = (self.items(of[key], values) for key in ("of", "first"))
            for count in counts:
                if not count.isdecimal() or not 1 <= int(count) <= len(names):
                    raise UserError(f"{of['first']}: {count}: expected numbers from 1 to {len(names)} ({of['of']})")
            return [",".join(names[: int(count)]) for count in counts]
        template = ",".join(map(str, of)) if isinstance(of, list) else f"{{{of}}}"
        option = of if isinstance(of, str) else "the list"
        items = ",".join(filter(None, self.expand(template, values).split(",")))
        return names_of(option, items) if items else []

    def _included(self, updates: int | None) -> Iterator[tuple[str, "Experiment"]]:
        """Yields (name, experiment) of each entry of `include`, one for each combination of its loop variables."""
        for key, content in (self.content.get("include") or {}).items():
            if not isinstance(content, dict):
                raise UserError(f"{self.path}: include {key}: expected keys among {', '.join(sorted(INCLUDE_KEYS))}")
            unknown = content.keys() - INCLUDE_KEYS
            if unknown or "file" not in content:
                problem = f"unknown key {min(unknown)}" if unknown else "no file"
                raise UserError(f"{self.path}: include {key}: {problem}")
            loops = content.get("for") or {}
            for values in self.combinations(loops):
                name = "/".join([key, *(values[variable] for variable in loops)])
                overrides = [f"{of}={self.expand(str(text), values)}" for of, text in content.get("values", {}).items()]
                folder = self.output / self.expand(content.get("folder", name), values)
                yield name, Experiment(Path(self.path).parent / content["file"], overrides, folder, updates)

    def _steps(self) -> list[Step]:
        """Lists the steps of this experiment and of included ones, each with the steps that it requires."""
        steps = {step.folder: step for step in self._own_steps()}
        for name, experiment in self.included.items():
            for step in experiment.steps:
                first = steps.setdefault(step.folder, step)  # several experiments may share a step
                if first.commands != step.commands:
                    raise UserError(
                        f"{self.path}: the steps {first.name} and {name}/{step.name} have the same folder and other "
                        "commands"
                    )
                if first is step:
                    step.name, step.output, step.required_steps = f"{name}/{step.name}", self.output, []
                    self.needed[step] = experiment.needed[step]
        for folder, step in steps.items():
            nested = [inner.name for inner in steps.values() if step.renew and folder in inner.folder.parents]
            if nested:
                raise UserError(f"{self.path}: step {step.name}: renew would remove the folder of step {nested[0]}")
        self._require(steps)
        return list(steps.values())

    def _own_steps(self) -> list[Step]:
        """Lists the steps of the file, each for all of its values; sets `needed`."""
        steps: dict[Path, Step] = {}
        needs: dict[Step, list[str]] = {}
        for key, content in self.content["steps"].items():
            if not isinstance(content, dict):
                raise UserError(f"{self.path}: step {key}: expected keys among {', '.join(sorted(STEP_KEYS))}")
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
                steps[folder] = step = Step(
                    name,
                    folder,
                    [self.words(command, values) for command in commands],
                    reads,
                    expects,
                    content.get("stdout"),
                    content.get("only if needed", False),
                    content.get("renew", False),
                    self.output,
                )
                needs[step] = [self.expand(name, values) for name in content.get("needs", [])]
        self.needed = {step: self._matching_steps(step, names, steps) for step, names in needs.items()}
        return list(steps.values())

    def _matching_steps(self, step: Step, names: list[str], steps: dict[Path, Step]) -> list[Step]:
        """Lists the steps that `names`, or prefixes of names, match. Raises `UserError` if a name matches no step."""
        matching = []
        for name in names:
            matches = [candidate for candidate in steps.values() if f"{candidate.name}/".startswith(f"{name}/")]
            if not matches:
                raise UserError(f"{self.path}: step {step.name}: needs: there is no step {name}")
            matching += matches
        return matching

    def _require(self, steps: dict[Path, Step]) -> None:
        """Adds the steps that each step requires: those that make folders and corpora that it reads, and `needed`."""
        corpora = {
            path: step
            for step in reversed(steps.values())  # the first step that makes a corpus
            for path in step.absolute_paths
            if path in corpus.MADE and any("recipes.corpus" in command for command in step.commands)
        }
        makers = corpora | steps
        for step in steps.values():
            read = [
                next((makers[folder] for folder in (path, *path.parents) if folder in makers), step)
                for path in step.absolute_paths
            ]
            needed = [steps[required.folder] for required in self.needed[step]]
            step.required_steps = list(dict.fromkeys([*(maker for maker in read if maker is not step), *needed]))

    def select_by_claims(self, claims: Sequence[str]) -> list[Step]:
        """Lists the steps of these claims, or of all claims, each step after those that it needs.

        A file without claims gives all steps. Steps that the values leave out, such as those of a language, are
        ignored. Raises `UserError` for an unknown claim, and for a claim without a remaining step.
        """
        if not claims and not self.claims:
            return self.select([])
        for claim in claims:
            if claim not in self.claims:
                hint = f"choose from {', '.join(self.claims)}" if self.claims else "this experiment has none"
                raise UserError(f"--claims {claim}: there is no such claim; {hint}")
        names = []
        for claim in claims or self.claims:
            templates = self.claims[claim]["steps"]
            expected = [name for template in templates for name in self.words(template, self.values)]
            existing = [name for name in expected if any(f"{step.name}/".startswith(f"{name}/") for step in self.steps)]
            if expected and not existing:
                raise UserError(f"{self.path}: claim {claim}: there is no step {expected[0]}")
            names += existing
        return self.select(names) if names else []

    def select(self, names: list[str]) -> list[Step]:
        """Lists the steps to run, each after those that it needs: all, or those whose names begin with `names`.

        Steps marked "only if needed" run if another step needs them or if `names` has them.
        """
        selected = [step for step in self.steps if any(f"{step.name}/".startswith(f"{name}/") for name in names)]
        for name in names:
            if not any(f"{step.name}/".startswith(f"{name}/") for step in self.steps) and name != "report":
                expected = dict.fromkeys(step.name.split("/")[0] for step in self.steps)
                raise UserError(f"--only {name}: there is no such step; expected {', '.join([*expected, 'report'])}")
        if not names:
            selected = [step for step in self.steps if not step.only_if_needed]
        ordered: list[Step] = []

        def add(step: Step, inside: tuple[Step, ...] = ()) -> None:
            if step in inside:
                names = ", ".join(member.name for member in inside[inside.index(step) :])
                raise UserError(f"{self.path}: these steps read from each other's folders: {names}")
            if step not in ordered:
                for needed in step.required_steps:
                    add(needed, (*inside, step))
                ordered.append(step)

        for step in selected:
            add(step)
        return ordered


def read_yaml(path: Any) -> dict[str, Any]:
    """Reads an experiment's file as a mapping. Raises `UserError` if it is not an experiment."""
    content = load(path)
    if isinstance(content, dict) and "base" in content:
        content.setdefault("steps", {})
    if not isinstance(content, dict) or not isinstance(content.get("steps"), dict) or content.keys() - KEYS:
        raise UserError(f"{path}: expected an experiment, a mapping with steps and any of {', '.join(sorted(KEYS))}")
    if base := content.pop("base", None):
        content = merged(read_yaml(Path(path).parent / base), content, path)
    return content


def merged(base: dict[str, Any], content: dict[str, Any], path: Any) -> dict[str, Any]:
    """Merges two experiments: values and steps of `content` replace those of `base` by name, null removes them.

    A string in the report of `content` is the title of a part of `base` and is replaced by that part.
    Raises `UserError` if there is none.
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
    """Raises `UserError` if a step expects a file or folder that does not exist and that no required step makes.

    FOLDER:FOLDER/FILE must exist in one of the folders. Corpora that `recipes.corpus` makes may be missing.
    """
    for step in steps:
        outputs = {*(needed.folder for needed in step.required_steps), *corpus.MADE}
        for path in step.expects:
            folders, slash, name = path.rpartition("/")
            folders = folders or slash
            candidates = [ROOT / folder / name for folder in folders.split(":")]
            if not any(stored(path).exists() or outputs & {path, *path.parents} for path in candidates):
                where = f" in {folders.replace(':', ' or ')}" if folders else ""
                raise UserError(f"step {step.name}: {name}: no such file{where}")
