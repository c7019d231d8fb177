"""A `python` for recipes that has imported fairseq already: processes start in milliseconds instead of seconds.

`warm_python(folder)` writes FOLDER/python, to be first in PATH, and starts a server behind it. Each call of that file
is a fork of the server with the caller's arguments, environment, working folder and standard streams, and ends with its
exit status. Unlike with the real `python` all modules of fairseq_xl are there already, and nothing is torn down at the
end; so the tests of the quickstart, of the comparisons, of the benchmark and of single commands use the real one.
"""

import atexit
import contextlib
import json
import logging
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    call = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(call)
    status = server.recv(1)
sys.exit(status[0] if status else 70)
"""


@contextlib.contextmanager
def warm_python(folder):
    """Yields the folder of the program; the server ends with the body."""
    address, program = str(folder / "socket"), folder / "python"
    program.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    program.chmod(0o755)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listening, str(program)))
    server.start()
    try:
        yield folder
    finally:
        server.terminate()
        server.join()
        listening.close()


@contextlib.contextmanager
def warm_environment(folder):
    """FOLDER becomes the active environment of scripts: recipes/environment.sh takes it for prepared (extra: tests)."""
    (folder / "bin").mkdir()
    key = "cat setup.cfg recipes/constraints.txt recipes/environment.sh | cksum"
    stamp = subprocess.run(["bash", "-c", key], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (folder / ".fairseq_xl-tests").write_text(stamp, encoding="utf-8")
    with warm_python(folder / "bin"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        patch.setenv("VIRTUAL_ENV", str(folder))
        patch.setenv("XL_EXTRAS", "tests")
        yield


def _serve(listening, program):
    import fairseq.options  # noqa: F401

    import fairseq_xl
    from fairseq_xl.patches import workers

    fairseq_xl.register()
    atexit._clear()  # pytest's
    atexit.register(workers._end_reading)
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:  # one that waits for the other, so that this one can listen
            child = os.fork()
            if child == 0:
                os._exit(_run(connection, program))
            connection.sendall(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256]))
            os._exit(0)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _run(connection, program):
    """Reads a call, becomes the process that it asks for, and returns its exit status."""
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    call = connection.makefile("rb").read(int.from_bytes(head, "big"))
    arguments, place, environment = json.loads(call)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", 1, closefd=False) for number in (1, 2))
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = program
    logging.getLogger().handlers.clear()  # pytest's
    if not any(word.startswith(("preprocess", "fairseq_xl", "fairseq_cli.train")) for word in arguments[:2]):
        # all others begin with importing fairseq, which does this
        given = {"format": "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "datefmt": "%Y-%m-%d %H:%M:%S"}
        logging.basicConfig(**given, level=logging.DEBUG)
    try:
        _interpret(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _interpret(arguments):
    kind, *rest = arguments
    sys.argv = arguments[1:] if kind in ("-m", "-c") else arguments
    if kind == "-m":
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv[0] = "-c"
        exec(rest[0], {"__name__": "__main__"})
    else:
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")
