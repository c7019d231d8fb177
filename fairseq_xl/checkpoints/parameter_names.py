"""Names of parameters; `XLEncoderModel` and `XLEncoderDecoderModel` list them all."""

import re

TOKENS = "encoder.token_embeddings.table.weight"
BIAS = "encoder.token_embeddings.output_bias"
POSITIONS = "encoder.embeddings.positions.weight"
LANGUAGES = "encoder.embeddings.languages.weight"
SEGMENTS = "encoder.embeddings.segments.weight"
DECODER_TOKENS, DECODER_BIAS, DECODER_LANGUAGES, DECODER_POSITIONS = (
    name.replace("encoder", "decoder", 1) for name in (TOKENS, BIAS, LANGUAGES, POSITIONS)
)

#: parameters with a row for each symbol, (V, C) or (V,): Transformers, the deep averaging network
OF_SYMBOLS = re.compile(r"(encoder|decoder)\.token_embeddings\.(table\.weight|output_bias)|words\.weight")
#: parameters with a row for each language, (L, C)
OF_LANGUAGES = re.compile(r"(encoder|decoder)\.embeddings\.languages\.weight")
MASTERS = "fp32_params"  # key of the optimizer state with float32 copies of weights in 16 bits
