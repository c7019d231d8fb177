"""Runs a fairseq command with flags from YAML files.

    python recipes/launch.py train DATA base.yaml more.yaml --flag value

Each file maps flags of the command to values: ``lr: 0.0005`` means ``--lr 0.0005``, ``fp16: true`` means ``--fp16``. A
later file overrides an earlier one, ``null`` removes a flag, and flags on the command line override all files.
``--objective-options`` are merged setting by setting; ``mlm.batch_sentences=null`` removes one. ``warmup-share: 0.1``
counts the updates of a fine-tuning (recipes/updates.py): warm-up over a tenth of them, and linear decay to 0 at their
end if that is the schedule. Aliases (``*name``) are refused.

The script prints the full command and replaces itself by it: the command gets the signals and sets the exit status. A
training that a signal stopped exits with 75, not 0, so that a recipe does not continue with a partly trained model.
Training processes of torchrun and SLURM exit with 0.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

try:
    import fairseq_cli  # noqa: F401
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
except ModuleNotFoundError as error:
    sys.exit(
        f"launch.py: the package {error.name} is missing: `. recipes/environment.sh` in the repository prepares "
        "and activates the environment"
    )

COMMANDS = ("train", "generate", "interactive", "validate", "eval_lm")
SETTINGS = "--objective-options"
SHARE = "--warmup-share"
ROOT = Path(__file__).resolve().parent.parent


class NoFlags(Exception):
    """Raised for a configuration file that is not a mapping of flags; the message names the file."""


def flags(paths):
    """Merges YAML files into a list of command-line arguments; later files override. Raises `NoFlags`."""
    files, settings = [read(path) for path in paths], []
    merged = OmegaConf.merge(*files)
    for values in map(OmegaConf.to_container, files):
        if SETTINGS[2:] in values:
            text = values[SETTINGS[2:]]
            settings = [] if text is None else [*settings, str(text)]
    if settings:
        merged[SETTINGS[2:]] = " ".join(settings)
    try:
        values = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:  # ${...} of an undefined key
        raise NoFlags(f"{', '.join(map(str, paths))}: {error.full_key}: {str(error).splitlines()[0]}") from error
    arguments = []
    for key, value in values.items():
        if value is True:
            arguments.append(f"--{key}")
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    return one_of_settings(arguments)


def one_of_settings(arguments):
    """Merges all --objective-options of the arguments into one; the last value of a setting is used."""
    others, settings, place = [], {}, None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag != SETTINGS:
            others.append(argument)
            continue
        place = len(others) if place is None else place
        value = value if equals else next(rest, "")
        settings |= {setting.partition("=")[0]: setting for setting in value.split()}
    return others if place is None else [*others[:place], SETTINGS, " ".join(settings.values()), *others[place:]]


def without_share(arguments):
    """Returns the arguments without --warmup-share, its last value, and its place among them; None without one."""
    others, share, place = [], None, None
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag == SHARE:
            share, place = value if equals else next(rest, ""), len(others)
        else:
            others.append(argument)
    return others, share, place


def with_counted(arguments):
    """Replaces --warmup-share by flags of counted updates (recipes/updates.py), whose error ends the program.

    Flags after it override them.
    """
    others, share, place = without_share(arguments)
    if share is None:
        return others
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "recipes.updates", share, *others]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return [*others[:place], *done.stdout.split(), *others[place:]]


def read(path):
    """Reads the flags and values of one file. Raises `NoFlags` if it is not a mapping of flags."""
    try:
        check_events(path)
        return OmegaConf.load(path)
    except UnicodeDecodeError as error:
        raise NoFlags(f"{path} is not UTF-8: it has the byte 0x{error.object[error.start]:02x}") from error
    except OSError as error:
        raise NoFlags(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:  # str(error) has several lines
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise NoFlags(f"{path} is not YAML{where}: {getattr(error, 'problem', None) or error.reason}") from error
    except OmegaConfBaseException as error:
        raise NoFlags(f"{path}: {str(error).splitlines()[0]}") from error


def check_events(path):
    """Raises `NoFlags` unless a file is one flat mapping: nested aliases could expand to billions of values."""
    flat = False  # whether the mapping has begun
    with open(path, encoding="utf-8") as stream:
        for event in yaml.parse(stream, Loader=yaml.SafeLoader):
            where = f"{path}, line {event.start_mark.line + 1}"
            if not flat and isinstance(event, (yaml.ScalarEvent, yaml.SequenceStartEvent)):
                raise NoFlags(f"{where}: expected lines 'flag: value'")
            if flat and isinstance(event, yaml.CollectionStartEvent):
                raise NoFlags(f"{where}: a flag has one value, found a list or a mapping")
            flat = flat or isinstance(event, yaml.MappingStartEvent)
    if not flat:
        raise NoFlags(f"{path} is empty: expected lines 'flag: value'")


def main():
    command, data, *rest = sys.argv[1:] if len(sys.argv) > 2 else ("", "")
    if command not in COMMANDS:
        sys.exit(f"usage: python recipes/launch.py {{{'|'.join(COMMANDS)}}} DATA CONFIG.yaml … [--flag value …]")
    configs = []
    while rest and rest[0].endswith((".yaml", ".yml")):
        configs.append(rest.pop(0))
    missing = [path for path in configs if not Path(path).is_file()]
    if missing or not configs:
        sys.exit(f"launch.py: {missing[0]}: no such file" if missing else "launch.py: name at least one YAML file")
    try:
        arguments = [data, "--user-dir", str(ROOT / "fairseq_xl"), *one_of_settings([*flags(configs), *rest])]
    except NoFlags as error:
        sys.exit(f"launch.py: {error}")
    arguments = with_counted(arguments)
    sys.stderr.write(f"+ fairseq-{command.replace('_', '-')} {shlex.join(arguments)}\n")
    sys.stderr.flush()
    if "WORLD_SIZE" not in os.environ:
        os.environ.setdefault("XL_STOPPED_STATUS", str(os.EX_TEMPFAIL))
    hidden = "ignore:`torch.jit.script` is deprecated:FutureWarning"  # of `import fairseq` since torch 2.15
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), hidden]))
    os.execv(sys.executable, [sys.executable, "-m", f"fairseq_cli.{command}", *arguments])


if __name__ == "__main__":
    main()
