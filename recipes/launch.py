"""Runs a fairseq command with flags from YAML files.

    python recipes/launch.py train DATA base.yaml more.yaml --flag value

Each file maps flags of the command to values, ``lr: 0.0005`` for ``--lr 0.0005`` and ``fp16: true`` for ``--fp16``;
a later file overrides an earlier one, ``null`` takes a flag away again, and flags on the command line come last.
The full command is shown before it runs, and takes this process's place: signals and the exit status are its own. But
for launchers of several processes, a training that a signal stopped ends with 75 instead of 0: what a script does next
must not go on from half a training.
"""

import os
import shlex
import sys
from pathlib import Path

import yaml
from omegaconf import OmegaConf

COMMANDS = ("train", "generate", "interactive", "validate", "eval_lm")
ROOT = Path(__file__).resolve().parent.parent


def flags(paths):
    """Merges YAML files, the last one winning, into a list of command-line arguments."""
    for path in paths:
        check_aliases(path)
    merged = OmegaConf.merge(*(OmegaConf.load(path) for path in paths))
    arguments = []
    for key, value in OmegaConf.to_container(merged, resolve=True).items():
        if value is True:
            arguments.append(f"--{key}")
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    return arguments


def check_aliases(path):
    """Ends with one sentence for a file with an alias: a few of them are enough for billions of values."""
    with open(path, encoding="utf-8") as stream:
        for event in yaml.parse(stream, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1
                sys.exit(f"launch.py: {path}, line {line}: write the value of the alias (*name) out")


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
        arguments = [data, "--user-dir", str(ROOT / "fairseq_xl"), *flags(configs), *rest]
    except yaml.YAMLError as error:
        sys.exit(f"launch.py: a configuration is not YAML: {error}")
    sys.stderr.write(f"+ fairseq-{command.replace('_', '-')} {shlex.join(arguments)}\n")
    sys.stderr.flush()
    if "WORLD_SIZE" not in os.environ:
        os.environ.setdefault("XL_STOPPED_STATUS", str(os.EX_TEMPFAIL))
    os.execv(sys.executable, [sys.executable, "-m", f"fairseq_cli.{command}", *arguments])


if __name__ == "__main__":
    main()
