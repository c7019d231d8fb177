"""One of two processes that run the command lines of FOLDER/jobs.json: python -m tests.distributed.worker FOLDER.

Each writes FOLDER/NAME.RANK.json: {"losses": {update: its micro-steps' losses as float.hex}, and the log's "loss" and
"score"}.
"""

import json
import os
import sys
from pathlib import Path

from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import train

from fairseq_xl.objectives import OBJECTIVES
from tests.commands import CPU, configuration, one_run
from tests.distributed.headed import Headed


def main():
    folder = Path(sys.argv[1])
    OBJECTIVES[Headed.name] = Headed
    for name, line in json.loads((folder / "jobs.json").read_text(encoding="utf-8")).items():
        sys.stderr.write(f"{name}\n")
        sys.stderr.flush()
        with one_run() as output:
            distributed_utils.call_main(configuration(options.get_training_parser(), [*line, *CPU]), train.main)
        result = {"losses": output.updates} | {name: output.statistics(name) for name in ("loss", "score")}
        (folder / f"{name}.{os.environ['RANK']}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
