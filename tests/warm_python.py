"""A `python` that has imported torch and fairseq already: processes start in milliseconds instead of seconds.

`python()` is the program. It takes `-m`, `-c` or a file, and `-B`, `-u` and `-W ignore` in front of them; for anything
else it becomes the real one. Each call is a fork of a server (tests/warm_server.py), a fresh interpreter that has
imported nothing of ours. The fork has the caller's arguments, environment, working folder, open files, process group
and ignored signals, and ends as any Python does, with `atexit` and finalization, but without the teardown of the
server's modules and the destructors of C++ libraries. The program ends with its exit status or by its signal. Signals
to the program reach the fork. If the program is killed (SIGKILL), the fork is killed a moment later; it does not
outlive the tests.
"""

import contextlib
import functools
import multiprocessing.spawn
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
words, flags = sys.argv[1:], []
while words and words[0] in ("-B", "-u", "-W", "-Wignore"):
    flags += [words.pop(0)]
    flags += [words.pop(0)] if flags[-1] == "-W" else []
kind = words[0] if words else "-"
if kind.startswith("-") and kind not in ("-m", "-c"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
handled = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1
mask = signal.pthread_sigmask(signal.SIG_BLOCK, handled)
ignored = [number for number in handled if signal.getsignal(number) == signal.SIG_IGN]
streams = []
for number in map(int, os.listdir("/dev/fd")):
    try:
        os.fstat(number)
    except OSError:  # of the folder itself
        continue
    streams.append(number)
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = dict(flags=flags, words=words, folder=os.getcwd(), environment=dict(os.environ), streams=streams)
    call.update(ignored=ignored, mask=list(map(int, mask)), group=os.getpgrp())
    call = json.dumps(call).encode()
    socket.send_fds(server, [len(call).to_bytes(8, "big")], streams)
    server.sendall(call)
    answer = server.makefile("r")
    pid, group = map(int, answer.readline().split() or [0, 0])
    for number in handled if pid else ():
        if number not in ignored:
            signal.signal(number, lambda number, _: os.kill(pid, number))
    if group:  # the fork is in the group in its place
        try:
            os.setpgid(0, group)
        except OSError:
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    status = int(answer.readline() or 70)
if status < 0:
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@functools.cache
def python():
    """The program's path; torchrun is beside it. The first call starts the server, which ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="warm-python-")
    address, program = os.path.join(folder.name, "socket"), os.path.join(folder.name, "python")
    Path(program).write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    torchrun = os.path.join(folder.name, "torchrun")
    Path(torchrun).write_text(f'#!/bin/sh\nexec {program} -m torch.distributed.run "$@"\n', encoding="utf-8")
    for path in (program, torchrun):
        os.chmod(path, 0o755)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    end, life = os.pipe()  # the server reads the end of the file when nobody has `life` any longer
    command = [sys.executable, "-W", "ignore", "-m", "tests.warm_server", program, str(listening.fileno()), str(end)]
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    passed = (listening.fileno(), end)
    streams = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    server = subprocess.Popen(command, cwd=ROOT, env=kept, pass_fds=passed, **streams)
    listening.close()
    os.close(end)
    _kept.extend((folder, server, life))
    return program


_kept = []  # what would end the server if it was released


@contextlib.contextmanager
def warm_environment(folder):
    """FOLDER becomes the active environment of scripts: recipes/environment.sh takes it for prepared (extra: tests).

    Its Python is also `sys.executable`, with which recipes/experiment.py starts commands.
    """
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(python())
    for name in ("preprocess", "train", "validate", "generate"):
        program = folder / f"bin/fairseq-{name}"
        program.write_text(f'#!/bin/sh\nexec {python()} -m fairseq_cli.{name} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    key = "cat setup.cfg recipes/constraints.txt recipes/environment.sh recipes/environment.py | cksum"
    stamp = subprocess.run(["bash", "-c", key], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (folder / ".fairseq_xl-tests").write_text(stamp, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        patch.setenv("VIRTUAL_ENV", str(folder))
        patch.setenv("XL_EXTRAS", "tests")
        patch.setattr(sys, "executable", str(folder / "bin/python"))
        patch.setattr(multiprocessing.spawn, "_python_exe", multiprocessing.spawn._python_exe)  # put back at the end
        multiprocessing.spawn.set_executable(python())
        yield
