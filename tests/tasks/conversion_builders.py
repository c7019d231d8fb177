"""Published models that conversion reads, and runs of it."""

import shutil

import pytest
import sentencepiece
import torch
from torch import nn

from fairseq_xl.commands import convert

TEXT = ["the house is green .", "a bird sings in the green house .", "the bird is in a tree .", "trees are green ."]
SENTENCES = ["the house is green .", "a tree sings ."]


def randomize(model):
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        mean = 1.0 if "norm" in name.lower() and name.endswith("weight") and parameter.dim() == 1 else 0.0
        nn.init.normal_(parameter, mean=mean, std=0.3)
    for name, parameter in model.named_parameters():
        if "token_type" in name and len(parameter) == 1:  # as in XLM-R's files
            nn.init.zeros_(parameter)
    return model.eval()


def xlm_roberta(folder, data_bin, dtype=torch.float32, shards=False):
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    config = XLMRobertaConfig(
        vocab_size=len(pieces) + 2,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=42,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    model = randomize(XLMRobertaForMaskedLM(config)).to(dtype)
    model.save_pretrained(folder, max_shard_size="5KB" if shards else "1GB")
    return model.float()


def mbart(folder, data_bin):
    from transformers import MBartConfig, MBartForConditionalGeneration

    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    config = MBartConfig(
        vocab_size=len(pieces) - 3 + 4 + 25 + 1,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=40,
        scale_embedding=True,
    )
    model = randomize(MBartForConditionalGeneration(config))
    model.save_pretrained(folder)
    return model


def run(*arguments):
    convert.main([str(argument) for argument in arguments])


@pytest.fixture
def original(tmp_path):
    folder = tmp_path / "original"
    folder.mkdir()
    return folder


def framed(loaded, language):
    """SENTENCES as tokens (B, T) of the converted model, with padding."""
    from fairseq_xl.data.framing import pad_rows
    from fairseq_xl.data.vocabulary.text_encoder import TextEncoder

    encode = TextEncoder(loaded.task.folder(), loaded.task.dictionary)
    number = loaded.task.dictionary.language_id(language)
    rows = [loaded.task.framing.sentence(encode(sentence, language), number) for sentence in SENTENCES]
    return torch.from_numpy(pad_rows(rows, loaded.task.dictionary.pad()))
