"""Writes a published model's dictionary.

    fairseq-xl model dictionary downloads/mlm_tlm_xnli15_1024.pth data-bin/xlm/dict.txt

`fairseq-preprocess --srcdict` reads it.
"""

from fairseq_xl.commands import Options, argument, command
from fairseq_xl.errors import UserError, language_codes


@command(
    argument("model", "the published model: its file of weights, or its folder"),
    argument("output", "the dict.txt to write", metavar="DICT"),
    argument("--langs", "languages, separated by commas (default: those of its language embeddings)"),
)
def main(options: Options) -> None:
    from fairseq_xl.checkpoints import published_models

    model = published_models.read(options.model)
    if not isinstance(model, published_models.Published):
        raise UserError(f"{options.model} is not a published model: expected a file of weights or its folder")
    languages = language_codes("--langs", options.langs) if options.langs else model.languages
    model.write_dictionary(options.output, languages)
