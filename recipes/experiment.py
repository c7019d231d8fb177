"""Runs the steps of an experiment, then writes its tables and pictures.

    python -m recipes.experiment FILE.yaml [name=value ...] [--only STEP,STEP] [--updates N] [--jobs N] [--list]

FILE.yaml has values, steps and a report; recipes/README.md describes its keys. A finished step is skipped. A step with
changed commands or input files is refused, or, with the key `renew`, run again.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting
from fairseq_xl.io.files import replacing, write_json
from fairseq_xl.io.folders import locked
from recipes import settings
from recipes.commands import Progress, signal_group, started
from recipes.experiment_file import ROOT, Experiment, Step, check_files
from recipes.settings import RECORD

STOPPED = os.EX_TEMPFAIL  # exit status of a training that a signal stopped


class Run:
    """Runs the steps of an experiment, several at a time, until a step fails or a signal arrives."""

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
        previous = {name: signal.signal(name, self.on_signal) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            with ThreadPoolExecutor(jobs) as pool:
                while waiting or running:
                    ready = [step for step in waiting if all(need in finished for need in step.required_steps)]
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
            for name, handler in previous.items():
                signal.signal(name, handler)

    def on_signal(self, signal_number: int, _: Any) -> None:
        self.signal = signal_number
        self.end(signal_number)

    def end(self, signal_number: int) -> None:
        """Sends a signal to every running command's process group: trainings save a checkpoint and end."""
        with self.lock:
            self.ending = True
            for process in self.processes:
                signal_group(process, signal_number)

    def run_step(self, step: Step) -> None:
        """Runs the commands of a step unless it is finished and has its results. Raises `UserError` and `Stopped`."""
        record = step.record(self.digests)
        try:
            before = settings.check(
                step.folder, RECORD, record, "choose another --output, or give the same options as before"
            )
        except UserError as error:
            message = str(error).replace("{output}", str(step.output))
            if not step.renew:
                raise UserError(message) from None
            sys.stderr.write(f"--- {self.elapsed()} {step.name} is run again: {message.partition(': remove')[0]}\n")
            shutil.rmtree(step.folder)
            before = {}
        if before.get("finished") and all((step.folder / name).exists() for name in before.get("results") or []):
            return
        step.folder.mkdir(parents=True, exist_ok=True)
        log = step.folder / "out.log"
        with locked(log, f"step {step.name}: another run is working in {step.folder}: choose another --output"):
            write_json(step.folder / RECORD, record)
            sys.stderr.write(f"--- {self.elapsed()} {step.name}: {log}\n")
            for i, command in enumerate(step.commands, start=1):
                output_name = step.stdout if i == len(step.commands) else None
                with replacing(step.folder / output_name) if output_name else contextlib.nullcontext() as stdout:
                    self.run_command(step, command, log, stdout)
            write_json(step.folder / RECORD, record | {"finished": True, "results": self.results(step)})

    def elapsed(self) -> str:
        """Returns the minutes and seconds since the run began."""
        seconds = int(time.monotonic() - self.begin)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def results(self, step: Step) -> list[str]:
        """Lists the files in a step's folder except logs, records and files of other steps."""
        inner_steps = {record.parent for record in step.folder.glob(f"*/**/{RECORD}")}
        files = [
            file for file in sorted(step.folder.rglob("*")) if file.is_file() and not inner_steps & {*file.parents}
        ]
        return [file.relative_to(step.folder).as_posix() for file in files if settings.is_result(file)]

    def run_command(self, step: Step, command: list[str], log: Path, stdout: Any) -> None:
        """Runs one command and appends its output to the log. Raises `UserError` if it fails, `Stopped` if it stops."""
        program = {"python": [sys.executable], "fairseq-xl": [sys.executable, "-m", "fairseq_xl"]}
        words = [*program.get(command[0], command[:1]), *command[1:]]
        paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        with open(log, "a", encoding="utf-8") as file, contextlib.ExitStack() as running:
            start = file.tell()
            with self.lock:
                if self.ending:
                    raise Stopped
                streams = {"stdin": subprocess.DEVNULL, "stdout": stdout or file, "stderr": file}
                environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
                process = running.enter_context(started(words, cwd=ROOT, env=environment, **streams))
                self.processes.add(process)
            status = self.wait(process, Progress(log, start))
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
    """Returns the error of a command and the text after it, or the last lines of its output, from byte `start` on."""
    with open(log, "rb") as file:
        file.seek(start)
        text = file.read().decode("utf-8", "replace")
    _, prefix, end = text.rpartition("fairseq_xl: error: ")
    lines = end.strip().splitlines()
    return " / ".join(lines if prefix else lines[-3:]) or "it printed nothing"


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
        help="run these steps and those that they need; the report is made if STEP is report",
    )
    parser.add_argument("--claims", default="", metavar="N,N", help="the steps that test these claims of the file")
    parser.add_argument(
        "--limit", type=minutes, metavar="MINUTES", help="stop after MINUTES; the same command continues"
    )
    parser.add_argument("--updates", type=positive, help="train every model for N updates only, to try things out")
    parser.add_argument("--jobs", type=positive, default=1, help="steps that run at the same time (default: 1)")
    parser.add_argument("--list", action="store_true", help="print the steps and their commands, run nothing")
    options = parser.parse_intermixed_args(arguments)
    error_reporting.install()
    experiment = Experiment(options.file, options.values, options.output, options.updates)
    only, claims = ([name for name in names.split(",") if name] for names in (options.only, options.claims))
    if only and claims:
        raise UserError("give --only or --claims, not both")
    steps = experiment.select(only) if only else experiment.select_by_claims(claims)
    if options.list:
        show(steps)
        return
    if options.jobs > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // options.jobs)))
    if with_report := not only or "report" in only:
        from recipes import report

        report.check(experiment)
    check_files(steps)
    run = Run(experiment)
    timer = threading.Timer(60 * (options.limit or 0), run.end, [signal.SIGTERM])
    timer.daemon = True  # it does not keep a finished experiment waiting
    if options.limit:
        timer.start()
    try:
        run.run_steps(steps, options.jobs)
    except Stopped:
        sys.stderr.write("stopped: run the same command to continue\n")
        sys.exit(128 + run.signal if run.signal else STOPPED)
    sys.stderr.write(f"--- {run.elapsed()} done: {experiment.output}\n")
    if with_report:
        report.write(experiment)


def positive(text: str) -> int:
    """Parses a whole number above 0."""
    if not re.fullmatch("[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text}: a whole number above 0 is needed")
    return int(text)


def minutes(text: str) -> float:
    """Parses a number of minutes above 0."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"{text}: a number above 0 is needed")
    return float(text)


if __name__ == "__main__":
    main()
