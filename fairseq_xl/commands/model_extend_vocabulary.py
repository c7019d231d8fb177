"""Adds pieces and languages to the vocabulary of a checkpoint.

    fairseq-xl model extend-vocabulary runs/my/pretrain/checkpoint_best.pt --data data-bin/my --output models/more \\
        --langs sw --text text.sw --pieces 1000

OUT gets checkpoint.pt, dict.txt and the sub-words. Either the dictionary is that of another data folder (--new-data),
or languages (--langs) and pieces learned from text (--text, --pieces) are added to that of DATA. Then
`fairseq-xl data prepare` makes the same dictionary with `vocabulary: {sentencepiece: OUT/sentencepiece.model}` and the
languages in the order of OUT/dict.txt; with --vocabulary-from OUT it needs no text of old languages. New pieces begin
as the mean of the old pieces of their text, and at random if no character is known; new languages begin as the mean of
the old languages, or as --like. Training goes on with --restore-file, or begins with --init-from.
"""

from fairseq_xl import register
from fairseq_xl.commands import Options, argument, command
from fairseq_xl.errors import UserError, in_range
from fairseq_xl.io import bounds


@command(
    argument("checkpoint", "checkpoint of any task, or its folder"),
    argument("--data", "data folder of the checkpoint", required=True, metavar="DATA"),
    argument("--output", "folder to write", required=True, metavar="OUT"),
    argument("--new-data", "data folder with the new dictionary", metavar="NEW"),
    argument("--langs", "languages to add, after the old ones", metavar="XX,YY"),
    argument("--text", "text from which new pieces are learned", nargs="+", metavar="FILE"),
    argument("--pieces", "number of new pieces", in_range(int, "1 or more", bounds.LARGEST_VOCABULARY), metavar="N"),
    argument("--like", "old language whose rows new ones get (default: the mean over all)", metavar="XX"),
)
def main(options: Options) -> None:
    if (options.text is None) != (options.pieces is None):
        raise UserError("--text and --pieces belong together: the files to learn from, and the number of new pieces")
    if bool(options.new_data) == bool(options.text or options.langs):
        raise UserError("give --new-data alone, or --langs, or --text with --pieces, or all three of these")
    if options.like and not (options.langs or options.new_data):
        raise UserError(f"--like {options.like}: there is no new language, give --langs or --new-data too")
    register()
    from fairseq_xl.checkpoints.vocabulary_extension import extend_vocabulary

    extend_vocabulary(options)
