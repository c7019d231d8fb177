"""Removes the pieces from a checkpoint's vocabulary that the text of a data folder does not use.

    fairseq-xl model trim-vocabulary runs/my/pretrain/checkpoint_best.pt --data data-bin/my --output models/small

OUT gets checkpoint.pt, dict.txt, the trimmed sub-words, and the binarized text of DATA with the new token ids, so that
training goes on with `fairseq-train OUT --restore-file OUT/checkpoint.pt`. Special symbols and languages stay. On this
text and the text of --keep, hidden states, embeddings and predictions of fine-tuned heads stay bit-identical. A
language model or translation model can no longer predict removed pieces, and the others share their probability. Other
text may get more pieces.
"""

from fairseq_xl.commands import Options, argument, command, several


@command(
    argument("checkpoint", "checkpoint of any task, or its folder"),
    argument("--data", "data folder with its dictionary, whose text is kept", required=True, metavar="DATA"),
    argument("--output", "folder to write", required=True, metavar="OUT"),
    several("--keep", "further text whose pieces stay; XX chooses DATA's word tokenizer, if any", "[XX=]FILE"),
)
def main(options: Options) -> None:
    from fairseq_xl.checkpoints.vocabulary_trimming import trim_vocabulary

    trim_vocabulary(options)
