"""Starts two processes that train together, and kills them if they do not end."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

from tests.warm_python import python

ROOT = Path(__file__).parents[2]
PATIENCE = 240  # seconds until processes are killed


def environment(**more):
    """The environment of this process without the variables of launchers, with one thread per process."""
    launcher = ("MASTER_", "WORLD_SIZE", "RANK", "LOCAL_RANK", "SLURM_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(launcher)}
    return kept | {"OMP_NUM_THREADS": "1"} | {key: str(value) for key, value in more.items()}


def free_port():
    """A port of this machine that nothing listens on."""
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


class Launch:
    """Processes that are started together; `logs` are the files with their output.

    Args:
        folder: folder of the logs.
        commands: one command line per process.
        environments: one environment per process.
    """

    def __init__(self, folder, commands, environments):
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = [folder / f"{number}.log" for number in range(len(commands))]
        self.processes = []
        for command, variables, log in zip(commands, environments, self.logs):
            with open(log, "wb") as stream:
                streams = dict(stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
                command = list(map(str, command))
                started = subprocess.Popen(command, cwd=ROOT, env=variables, preexec_fn=os.setpgrp, **streams)
            self.processes.append(started)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)  # a group of its own: it and its children
                process.wait()

    @property
    def text(self):
        """All that was printed."""
        return "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in self.logs)

    def wait_for(self, words):
        """Returns once `words` were printed."""
        end = time.monotonic() + PATIENCE
        while words not in self.text:
            assert time.monotonic() < end, self.text
            assert all(process.poll() is None for process in self.processes), self.text
            time.sleep(0.01)

    def statuses(self):
        """Exit statuses of all processes, in order."""
        end = time.monotonic() + PATIENCE
        return [process.wait(max(0.1, end - time.monotonic())) for process in self.processes]


def pair(folder, command):
    """The same command twice, as ranks 0 and 1, told so as torchrun tells it."""
    port = free_port()
    ranks = [
        environment(MASTER_ADDR="localhost", MASTER_PORT=port, WORLD_SIZE=2, RANK=rank, LOCAL_RANK=rank)
        for rank in range(2)
    ]
    return Launch(folder, [command] * 2, ranks)


def train(line):
    """The command that trains with the given command line of fairseq-train."""
    return [python(), "-W", "ignore", "-m", "fairseq_cli.train", *line]


def run_jobs(folder, jobs):
    """Runs command lines of fairseq-train, {name: line}, one after the other in two processes.

    Returns:
        {name: the two ranks' results as `worker.py` writes them}.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {name: list(map(str, line)) for name, line in jobs.items()}
    (folder / "jobs.json").write_text(json.dumps(described), encoding="utf-8")
    with pair(folder, [python(), "-W", "ignore", "-m", "tests.distributed.worker", folder]) as launch:
        assert launch.statuses() == [0, 0], launch.text
    return {
        name: [json.loads((folder / f"{name}.{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
        for name in jobs
    }
