"""Names of parameters, and those of earlier versions; `XLEncoderModel` and `XLEncoderDecoderModel` list them all."""

import re

from torch import Tensor

State = dict[str, Tensor]

TOKENS = "encoder.token_embeddings.table.weight"
BIAS = "encoder.token_embeddings.output_bias"
POSITIONS = "encoder.embeddings.positions.weight"
LANGUAGES = "encoder.embeddings.languages.weight"

#: parameters with a row for each symbol, (V, C) or (V,): Transformers, the deep averaging network
OF_SYMBOLS = re.compile(r"(encoder|decoder)\.token_embeddings\.(table\.weight|output_bias)|words\.weight")
#: parameters with a row for each language, (L, C)
OF_LANGUAGES = re.compile(r"(encoder|decoder)\.embeddings\.languages\.weight")
#: names of parameters in checkpoints and language modules of earlier versions -> present names
_OLD_NAMES = {
    r"^(encoder|decoder)\.bank\.tokens\.": r"\1.token_embeddings.table.",
    r"^(encoder|decoder)\.bank\.bias$": r"\1.token_embeddings.output_bias",
    r"^(encoder|decoder)\.bank\.special\.": r"\1.token_embeddings.special.",
    r"^decoder\.futures\.": "decoder.stream_embeddings.",
}


def upgrade_keys(state: State) -> State:
    """Renames the parameters in a state dict of an earlier version to their present names; returns a new dict."""

    def upgrade(name: str) -> str:
        for old, new in _OLD_NAMES.items():
            name = re.sub(old, new, name)
        return name

    return {upgrade(name): value for name, value in state.items()}
