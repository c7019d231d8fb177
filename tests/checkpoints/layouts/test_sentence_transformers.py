"""Folders of sentence-transformers: embeddings against our own pooling of the same model's hidden states."""

import json

import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from fairseq_xl.checkpoints.layouts.exported_folders import write_sentence_transformers
from fairseq_xl.checkpoints.layouts.sentence_transformers import MODULES, SentenceSettings, parse_settings
from fairseq_xl.checkpoints.layouts.transformers_tokenizer import write_tokenizer
from fairseq_xl.data.framing import Framing, pad_rows
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder, truncate
from fairseq_xl.errors import UserError
from fairseq_xl.modules.pooling import pool
from tests.checkpoints.layouts.many_languages import LINES

LONGEST, DIM = 20, 16


@pytest.fixture(scope="module")
def exported(data_folder, tmp_path_factory):
    """A transformers folder with a random model, and a function from texts to its hidden states and padding."""
    folder, data = tmp_path_factory.mktemp("exported"), data_folder()
    dictionary = XLDictionary.load(data / "dict.txt")
    torch.manual_seed(1)
    sizes = dict(vocab_size=len(dictionary), hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2)
    config = XLMRobertaConfig(**sizes, intermediate_size=32, max_position_embeddings=LONGEST + 2, type_vocab_size=1)
    model = XLMRobertaModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    write_tokenizer(folder, data, dictionary, "xl", LONGEST)
    encode, framing = TextEncoder(data, dictionary), Framing.of("xl", dictionary)

    @torch.no_grad()
    def run(texts):
        rows = [framing.sentence(truncate(encode(text, "en"), LONGEST - 1)) for text in texts]
        tokens = torch.from_numpy(pad_rows(rows, dictionary.pad()))
        padding = tokens.eq(dictionary.pad())
        return model(tokens, attention_mask=(~padding).long()).last_hidden_state, padding

    return folder, run


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_embeddings_are_ours(exported, pooling):
    from sentence_transformers import SentenceTransformer  # takes seconds to import

    folder, run = exported
    write_sentence_transformers(folder, SentenceSettings(), pooling, LONGEST, DIM)
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    found = model.encode(LINES, batch_size=5, convert_to_tensor=True)
    hidden, padding = run(LINES)
    assert padding.any() and not padding[:, -1].all() and found.shape == (len(LINES), DIM)
    torch.testing.assert_close(found, pool(hidden, padding, pooling), atol=1e-5, rtol=0)
    assert model.max_seq_length == LONGEST
    other = pool(hidden, padding, "first" if pooling == "mean" else "mean")
    assert (found - other).abs().max() > 0.01


def test_wrong_folders(tmp_path):
    with pytest.raises(UserError, match="is no transformers folder with a tokenizer: it has no tokenizer.json"):
        write_sentence_transformers(tmp_path, SentenceSettings(), "mean", LONGEST, DIM)


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "config.json", "../1_Pooling/config.json", "/config.json"])
def test_stored_files_are_those_of_the_modules(name):
    """They are written below the exported folder."""
    files = SentenceSettings().files_with("mean", LONGEST, DIM)
    assert parse_settings(files, "stored").pooling == "mean"
    with pytest.raises(UserError, match=f"stored has {name!r}, which is no file of its modules"):
        parse_settings(files | {name: "{}"}, "stored")


@pytest.mark.parametrize("path", ["", ".", "..", "/", "a/b", "a\0b"])
def test_modules_have_folders(path):
    files = SentenceSettings().files_with("mean", LONGEST, DIM)
    modules = json.loads(files[MODULES])
    modules[1]["path"] = path
    with pytest.raises(UserError, match=r"modules\.json (has the paths \['', ''\]|names .*, which is no module)"):
        parse_settings({MODULES: json.dumps(modules), f"{path}/config.json": files["1_Pooling/config.json"]}, "stored")
