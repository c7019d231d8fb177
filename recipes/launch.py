"""Runs a fairseq command with flags from YAML files.

    python recipes/launch.py train DATA base.yaml more.yaml --flag value

Each file maps flags of the command to values: ``lr: 0.0005`` means ``--lr 0.0005``, ``fp16: true`` means ``--fp16``. A
later file overrides an earlier one, ``null`` removes a flag, and flags on the command line override all files; one
precision replaces another, as ``--bf16`` does ``fp16: true``.
``--objective-options`` are merged setting by setting; ``mlm.batch_sentences=null`` removes one. References
(``${name}``) are refused.

The script prints the full command and replaces itself by it: the command gets the signals and sets the exit status. A
training that a signal stopped exits with 75, not 0, so that a recipe does not continue with a partly trained model.
Training processes of torchrun and SLURM exit with 0.
"""

import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import Any

try:
    import fairseq_cli  # noqa: F401
    import yaml  # noqa: F401
except ModuleNotFoundError as error:
    sys.exit(
        f"launch.py: the package {error.name} is missing: `. recipes/environment.sh` in the repository prepares "
        "and activates the environment"
    )

COMMANDS = ("train", "generate", "interactive", "validate", "eval_lm")
ROOT = Path(__file__).resolve().parent.parent


def load_package() -> None:
    """Imports `fairseq_xl` from this repository's folder, since it may not be installed."""
    folder = ROOT / "fairseq_xl"
    spec: Any = importlib.util.spec_from_file_location(folder.name, folder / "__init__.py")
    sys.modules[folder.name] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


if "fairseq_xl" not in sys.modules:
    load_package()
from fairseq_xl.errors import UserError  # noqa: E402
from fairseq_xl.io.flags import flags, overridden  # noqa: E402, F401


def main() -> None:
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
        arguments = [data, "--user-dir", str(ROOT / "fairseq_xl"), *overridden(configs, rest)]
    except UserError as error:
        sys.exit(f"launch.py: {error}")
    sys.stderr.write(f"+ fairseq-{command.replace('_', '-')} {shlex.join(arguments)}\n")
    sys.stderr.flush()
    hidden = "ignore:`torch.jit.script` is deprecated:FutureWarning"  # of `import fairseq` since torch 2.15
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), hidden]))
    os.execv(sys.executable, [sys.executable, "-m", f"fairseq_cli.{command}", *arguments])


if __name__ == "__main__":
    main()
