"""Folders of sentence-transformers with random weights, and embeddings of our command."""

import numpy as np
import pytest

from fairseq_xl import commands
from tests.command_line import cli
from tests.tasks.conversion_builders import SENTENCES, mbert, original, xlm_roberta  # noqa: F401

LONG = " ".join(SENTENCES)  # is truncated
PROMPTS = {"query": "the house ", "passage": "a tree "}


@pytest.fixture(params=["mean", "cls"])
def sentences(request, original, data_bin, tmp_path):
    """A random model with all settings, and its embeddings with a prompt, or the default one."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    (xlm_roberta if request.param == "mean" else mbert)(original, data_bin)
    modules = [Transformer(str(original)), Pooling(16, pooling_mode=request.param), Normalize()]
    model = SentenceTransformer(modules=modules, prompts=PROMPTS, default_prompt_name="passage", device="cpu")
    model.max_seq_length = 9
    model.save(str(tmp_path / "theirs"))
    return model


def embedded(folder, tmp_path, *more, text=(*SENTENCES, "", LONG)):
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    output = tmp_path / "rows.npy"
    line = ["embed", folder, *more, *cli(lang="en", input=tmp_path / "text", output=output)]
    commands.main(list(map(str, line)))
    return np.load(output)
