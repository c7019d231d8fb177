"""The server of tests/warm_python.py: python -m tests.warm_server PROGRAM SOCKET END, the last two file descriptors."""

import atexit
import contextlib
import copy
import ctypes
import fcntl
import gc
import importlib
import json
import logging
import multiprocessing.spawn
import os
import runpy
import signal
import socket
import sys
import threading
import types
import warnings
import weakref
from pathlib import Path
from select import select

from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import OmegaConf
from py3langid.langid import MODEL_FILE, LanguageIdentifier

#: what most programs import, except for modules of ours
SHARED = ["fairseq.options", "fairseq.trainer", "sacremoses", "safetensors.torch", "torch._dynamo"]
SHARED += ["torch.distributed.optim"]
_imported = {}  # the server's modules; if they were torn down, each fork would copy what all share


def _import_all():
    """Imports what programs share; registers before that what is called at a program's end after all else."""
    atexit.register(_keep_modules)
    for name in SHARED:
        importlib.import_module(name)
    ConfigStore.store = _store
    model = LanguageIdentifier.from_model_file(MODEL_FILE)  # it takes a second
    LanguageIdentifier.from_model_file = lambda path: copy.copy(model)
    _imported.update(sys.modules)
    for finalizer in weakref.finalize._registry:  # of PyTorch's operators
        finalizer.atexit = False


class _Structured:
    """A dataclass of which hydra makes a config when it loads it: one of each architecture is half of our import."""

    def __init__(self, node):
        self.node = node

    def __deepcopy__(self, memo):
        return OmegaConf.structured(self.node)


def _store(self, name, node, group=None, package=None, provider=None):
    """As `ConfigStore.store`, except that the config is made when it is loaded."""
    configs, name = self.repo, f"{name.removesuffix('.yaml')}.yaml"
    for part in group.split("/") if group else ():
        configs = configs.setdefault(part, {})
    configs[name] = ConfigNode(name, _Structured(node), group, package, provider)


def _keep_modules():
    """Hides the server's modules from Python's finalization, except for those that it needs; never frees them."""
    if "triton" not in sys.modules:  # its bindings report what is never freed as leaks
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_imported))
        for name in _imported.keys() - {"sys", "builtins", "io", "threading"}:
            sys.modules.pop(name, None)


def _serve(listening, end):
    """Returns in a fork, with its call; or in the server, with None, when nobody needs it any longer."""
    logging.getLogger().handlers.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # looking for garbage would copy in each fork what all share
    gc.set_threshold(10_000, 10, 10)
    while listening in select([listening, end], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _keep(connection, end)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return None


def _keep(connection, end):
    """Forks once more, and tells the program what becomes of the fork, in which alone it returns: with the call."""
    head, files, _, _ = socket.recv_fds(connection, 8, 250)
    call = json.loads(connection.makefile("rb").read(int.from_bytes(head, "big")))
    group, pid = os.getpgrp(), os.fork()
    if pid == 0:
        _join(0, call["group"])
        connection.close()
        os.close(end)
        return call | {"files": files}
    joined = _join(pid, call["group"]) and call["group"] != group
    for file in files:
        os.close(file)

    def watch():
        select([connection, end], [], [])  # which say nothing: the program or the tests have ended
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    with contextlib.suppress(OSError):  # the program was killed
        connection.sendall(f"{pid} {group if joined else 0}\n".encode())
        threading.Thread(target=watch, daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(f"{status}\n".encode())
    os._exit(0)


def _join(pid, group):
    """Puts a process into the group, or, if that is of another session, into one of its own."""
    try:
        os.setpgid(pid, group)
    except OSError:
        with contextlib.suppress(OSError):
            os.setpgid(pid, 0)
        return False
    return True


def _become(call, program):
    """Makes this process what the call asks for, except for running it."""
    safe = [fcntl.fcntl(file, fcntl.F_DUPFD, 300) for file in call["files"]]
    for file in call["files"]:
        os.close(file)
    for file, number in zip(safe, call["streams"]):
        os.dup2(file, number)
        os.close(file)
    buffering = {"write_through": True} if "-u" in call["flags"] else {}
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        stream = os.fdopen(number, "w", encoding="utf-8", errors=errors, closefd=False)
        stream.reconfigure(line_buffering=number == 2 or stream.isatty(), **buffering)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.fsync = os.fstat  # as in tests/conftest.py
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))  # as Python begins
    sys.executable, sys.dont_write_bytecode = program, "-B" in call["flags"] or sys.dont_write_bytecode
    multiprocessing.spawn.set_executable(program)
    warnings.resetwarnings()
    sys.warnoptions[:] = ["ignore"] if {"-W", "-Wignore"} & set(call["flags"]) else []
    for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", kind, append=True)  # as Python begins
    if sys.warnoptions:
        warnings.simplefilter("ignore")
    if not any(
        name in word for word in call["words"][:2] for name in ("preprocess", "fairseq_xl", "fairseq_cli.train")
    ):
        # all others begin with importing fairseq, which does this
        given = {"format": "%(asctime)s | %(levelname)s | %(name)s | %(message)s", "datefmt": "%Y-%m-%d %H:%M:%S"}
        logging.basicConfig(**given, level=logging.DEBUG)
    if "triton" in sys.modules:
        atexit.register(gc.unfreeze)  # frozen objects would never be freed, which triton's bindings report as leaks
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in call["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, call["mask"])


def _end_at_once():
    """Lets exit() end the process after Python's finalization: destructors of C++ libraries take longer than that."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc; what is registered last is called first
        libc.on_exit(libc._exit, None)  # as _exit(status)
        libc.__cxa_atexit(libc.fflush, None, None)


def _interpret(kind, *rest):
    """As the command line of Python does."""
    sys.modules.pop("tests", None)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if kind == "-m":
        sys.argv, sys.path[0] = ["-m", *rest[1:]], os.getcwd()
        runpy._run_module_as_main(rest[0])
    elif kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.argv, sys.path[0], main.__file__ = [kind, *rest], os.path.dirname(os.path.abspath(kind)), kind
        exec(compile(Path(kind).read_bytes(), kind, "exec"), vars(main))


if __name__ == "__main__":
    _import_all()
    _this, (_program, _listening, _end) = sys.modules["__main__"], sys.argv[1:]
    _call = _serve(socket.socket(fileno=int(_listening)), int(_end))
    if _call:
        _become(_call, _program)
        _end_at_once()
        _interpret(*_call["words"])
