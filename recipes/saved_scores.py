"""Adds scores to JSON files of ``results/``, and describes the state of an experiment's claims.

The steps of an experiment may run in parts, on several machines. The file's entry ``steps`` has a fingerprint of each
finished step, by folder, so that scores of other settings are refused.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json
from recipes.experiment_file import Experiment, Step, Values
from recipes.score_files import read, read_saved
from recipes.settings import RECORD, Digests, Record

STEPS = "steps"
SETTINGS = "recipes/"  # folder of configurations; texts and checkpoints do not count: each machine makes its own


class Fingerprints:
    """Hashes of steps: of their commands, the configurations that these read, and the required steps.

    Args:
        record_of: returns the record of a step.
    """

    def __init__(self, record_of: Callable[[Step], Record]) -> None:
        self.record_of = record_of
        self.hashes: dict[Step, str] = {}

    def of(self, step: Step) -> str:
        if step not in self.hashes:
            record = self.record_of(step)
            configurations = {path: digest for path, digest in record["files"].items() if path.startswith(SETTINGS)}
            content = [record["commands"], configurations, list(map(self.of, step.required_steps))]
            text = json.dumps(content, sort_keys=True)
            self.hashes[step] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self.hashes[step]


def folder_of(step: Step, experiment: Experiment) -> str:
    """Returns the step's folder, relative to the output folder; a shared step of included experiments has one."""
    return step.folder.relative_to(experiment.output).as_posix()


def present_fingerprints(experiment: Experiment) -> Fingerprints:
    """Returns the fingerprints of the experiment's present commands and configurations."""
    digests = Digests()
    return Fingerprints(lambda step: step.record(digests, SETTINGS))


def finished_steps(experiment: Experiment, run: Path) -> dict[str, str]:
    """Returns {folder: fingerprint} of the finished steps in an output folder or a JSON file."""
    if run.is_file():
        return dict(read_saved(run).get(STEPS) or {})
    records = {step: read(run / folder_of(step, experiment) / RECORD) for step in experiment.steps}
    present = present_fingerprints(experiment)
    fingerprints = Fingerprints(lambda step: records[step] or present.record_of(step))
    return {
        folder_of(step, experiment): fingerprints.of(step) for step, of in records.items() if of and of.get("finished")
    }


def read_scores(path: Path) -> dict[str, Any]:
    """Reads a JSON file of scores, {} without one. Raises `UserError` if it is not a JSON object."""
    return read_saved(path) if path.exists() else {}


def other_settings(steps: dict[str, str], experiment: Experiment) -> str | None:
    """Returns the folder of a step of `steps`, {folder: fingerprint}, with other settings than the experiment's."""
    present = present_fingerprints(experiment)
    folders = {folder_of(step, experiment): step for step in experiment.steps}
    return next((name for name, step in folders.items() if steps.get(name, present.of(step)) != present.of(step)), None)


def check_settings(path: Path, experiment: Experiment) -> None:
    """Raises `UserError` if a JSON file has no scores, or scores of other settings than the experiment's."""
    if not read_saved(path):
        raise UserError(f"{path}: this file has no scores")
    if folder := other_settings(finished_steps(experiment, path), experiment):
        raise UserError(
            f"{path}: the step in {folder}, or one that it needs, was run with other settings than {experiment.path} "
            "has with these values: give the values of the run"
        )


def add(path: Path, scores: dict[str, Any], experiment: Experiment, run: Path) -> None:
    """Adds the scores of an output folder to a JSON file. Entries without a new score stay.

    A saved test stays if the new one has fewer seeds.

    Raises `UserError` if the file is not a JSON object, or if one of its steps was run with other settings than the
    experiment's and not again since.
    """
    saved = read_scores(path)
    steps = (saved.get(STEPS) or {}) | finished_steps(experiment, run)
    if folder := other_settings(steps, experiment):
        raise UserError(
            f"--save {path}: the step in {folder}, or one that it needs, was run with other settings than "
            f"{experiment.path} has with these values: give the values of the run, or run the step again"
        )
    added = {name: score for name, score in scores.items() if seeds_of(score) >= seeds_of(saved.get(name))}
    write_json(path, dict(sorted((saved | added | ({STEPS: dict(sorted(steps.items()))} if steps else {})).items())))


def seeds_of(entry: Any) -> int:
    """Returns the number of seeds of a test; 0 for a score."""
    return len(entry.get("differences", [])) if isinstance(entry, dict) and "over_examples" in entry else 0


def state_of_claims(
    experiment: Experiment,
    run: Path,
    tests: dict[str, dict[str, str]],
    controls: dict[str, dict[str, str]],
    missing: dict[str, list[str]],
) -> Values:
    """Describes the claims: {"claims": their number, "run": the number of claims that are run, CLAIM: its state}.

    A claim is run if all of its steps are finished, with the experiment's present settings, and all of its tests have
    scores.

    Args:
        tests: claim -> test of the claim -> conclusion.
        controls: claim -> test against a baseline or control -> conclusion.
        missing: claim -> tests without scores.
    """
    states: Values = {}
    finished = finished_steps(experiment, run) if experiment.claims else {}
    present = present_fingerprints(experiment)
    for name, claim in experiment.claims.items():
        steps = experiment.select_by_claims([name])
        states[name] = {
            "says": experiment.expand(claim["says"]),
            "steps": len(steps),
            "finished": sum(finished.get(folder_of(step, experiment)) == present.of(step) for step in steps),
            "tests": tests.get(name, {}),
            "controls": controls.get(name, {}),
            "missing": missing.get(name, []),
        }
    run_claims = [
        name
        for name, state in states.items()
        if state["finished"] == state["steps"] and state["tests"] and not state["missing"]
    ]
    return {"claims": len(states), "run": len(run_claims), **states}
