"""Writes a model card: a README with languages, architecture, settings, data and scores of a checkpoint.

    fairseq-xl model card runs/my/nc/checkpoint_best.pt --scores runs/my/nc/scores.json --output models/nc/README.md

The data are listed with their hashes, scores with their signatures. Use and license are to be filled in by hand: an
existing file is not replaced.
"""

from pathlib import Path

from fairseq_xl.commands import Options, argument, command, several
from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_lines

SCORES = ("scores.json", "bleu.json")  # files of the recipes


@command(
    argument("checkpoint", "checkpoint, or its folder"),
    several("--scores", "JSON files of `fairseq-xl score` (default: scores.json and bleu.json of the folder)", "FILE"),
    argument("--output", "file to write (default: README.md of the checkpoint's folder)", metavar="FILE"),
)
def main(options: Options) -> None:
    from fairseq_xl.checkpoints.identity import found_in, open_checkpoint
    from fairseq_xl.inference.cards import model_card

    path = Path(options.checkpoint)
    if path.is_dir():
        path, _ = found_in(path)
    output = Path(options.output or path.parent / "README.md")
    if output.exists():
        raise UserError(f"{output} exists: remove it, or name another file by --output")
    folder = path.absolute().parent
    scores = [Path(file) for file in options.scores] or [*filter(Path.is_file, map(folder.joinpath, SCORES))]
    card = model_card(open_checkpoint(path, finite=False), folder.name, scores)
    write_lines(output, card.splitlines())
