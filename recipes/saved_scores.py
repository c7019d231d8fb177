"""Adds scores to JSON files of ``results/``, and says which claims of an experiment they test.

Such a file has the scores of an experiment whose steps may have run in parts, on several machines. Under ``steps`` it
has a fingerprint of the commands and configurations of each step, so that scores of other settings are not mixed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import read_json, write_json
from recipes.experiment_file import Experiment, Values
from recipes.score_files import read
from recipes.settings import RECORD, Digests, Record

STEPS = "steps"


def fingerprint(record: Record) -> str:
    """Hash of a step's commands and of the files of ``recipes/`` that they read.

    Texts and checkpoints do not count: another machine makes its own.
    """
    configurations = {path: digest for path, digest in record["files"].items() if path.startswith("recipes/")}
    text = json.dumps([record["commands"], configurations], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finished_steps(experiment: Experiment, run: Path) -> dict[str, str]:
    """{name: fingerprint} of the finished steps in an output folder or a JSON file."""
    if run.is_file():
        return dict(read_json(run).get(STEPS) or {})
    records = {step.name: read(run / step.folder.relative_to(experiment.output) / RECORD) for step in experiment.steps}
    return {name: fingerprint(record) for name, record in records.items() if record and record.get("finished")}


def add(path: Path, scores: dict[str, Any], experiment: Experiment, run: Path) -> None:
    """Adds the scores of an output folder to a JSON file; its other entries stay.

    Raises `UserError` if the file is something else, or if one of its steps was run with other settings than the
    experiment has now and has not been run again.
    """
    kept = read_json(path) if path.exists() else {}
    if not isinstance(kept, dict):
        raise UserError(f"--save {path}: this file is not a JSON object of scores")
    steps = (kept.get(STEPS) or {}) | finished_steps(experiment, run)
    digests = Digests()
    for step in experiment.steps:
        if step.name in steps and steps[step.name] != fingerprint(step.record(digests)):
            raise UserError(
                f"--save {path}: its step {step.name} was run with other settings than {experiment.path} has now: "
                f"run it again, or save to another file"
            )
    write_json(path, dict(sorted((kept | scores | ({STEPS: dict(sorted(steps.items()))} if steps else {})).items())))


def state_of_claims(
    experiment: Experiment, run: Path, verdicts: dict[str, list[str]], missing: dict[str, list[str]]
) -> Values:
    """Describes the state of the claims: {"claims": how many there are, "run": how many of them are tested, CLAIM: …}.

    A claim is tested if all of its steps are finished, and all of its tests have scores.

    Args:
        verdicts: claim -> conclusions of its tests.
        missing: claim -> its tests without scores.
    """
    found: Values = {}
    finished = finished_steps(experiment, run) if experiment.claims else {}
    for name, claim in experiment.claims.items():
        steps = experiment.chosen(experiment.steps_of([name]))
        found[name] = {
            "says": experiment.expand(claim["says"]),
            "steps": len(steps),
            "finished": sum(step.name in finished for step in steps),
            "verdicts": verdicts.get(name, []),
            "missing": missing.get(name, []),
        }
    tested = [of for of in found.values() if of["finished"] == of["steps"] and of["verdicts"] and not of["missing"]]
    return {"claims": len(found), "run": len(tested), **found}
