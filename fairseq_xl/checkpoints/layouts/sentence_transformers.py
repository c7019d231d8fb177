"""A transformers folder as a model of sentence embeddings: `SentenceTransformer(FOLDER)` reads it."""

from pathlib import Path
from typing import Literal

from fairseq_xl.errors import UserError
from fairseq_xl.io.files import write_json

_POOLING = "1_Pooling"
#: names of the classes that all versions of sentence-transformers know
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": _POOLING, "type": "sentence_transformers.models.Pooling"},
]


def write_sentence_transformers(folder: Path, pooling: Literal["mean", "first"], max_length: int, dim: int) -> None:
    """Adds the files of sentence-transformers to a transformers folder of an encoder with a tokenizer.

    The sentence embedding is that of `fairseq_xl.inference.embedder.pool`: the mean of the last layer's hidden states
    over all tokens but padding, special symbols included, or the hidden state of the first token. The folder's model
    must end with the layer whose hidden states are pooled.

    Args:
        folder: the transformers folder.
        pooling: "mean" or "first".
        max_length: maximum number of tokens of an input, symbols of the framing included.
        dim: number of channels of the hidden states.

    Raises `UserError` for a folder without tokenizer.json, and if a file cannot be written.
    """
    if not (folder / "tokenizer.json").is_file():
        raise UserError(f"{folder} is no transformers folder with a tokenizer: it has no tokenizer.json")
    (folder / _POOLING).mkdir(exist_ok=True)
    modes = {"cls_token": pooling == "first", "mean_tokens": pooling == "mean"}
    modes |= {"max_tokens": False, "mean_sqrt_len_tokens": False}
    pooled = {"word_embedding_dimension": dim, **{f"pooling_mode_{mode}": used for mode, used in modes.items()}}
    write_json(folder / _POOLING / "config.json", pooled)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})
    write_json(folder / "modules.json", _MODULES)
