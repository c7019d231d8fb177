"""Published models that conversion reads, and runs of it."""

import json
import shutil

import pytest
import sentencepiece
import torch
import transformers

from fairseq_xl.commands import model_convert
from tests.published_text import write_wordpiece, write_xlm
from tests.tasks.published_models import XLM_R, XLM_SIZES, randomize

TEXT = ["the house is green .", "a bird sings in the green house .", "the bird is in a tree .", "trees are green ."]
SENTENCES = ["the house is green .", "a tree sings ."]
SIDE = dict(layers=2, attention_heads=2, ffn_dim=64)


def xlm_roberta(folder, data_bin, dtype=torch.float32, shards=False):
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    config = XLMRobertaConfig(vocab_size=len(pieces) + 2, **XLM_R | dict(intermediate_size=64))
    model = randomize(XLMRobertaForMaskedLM(config)).to(dtype)
    model.save_pretrained(folder, max_shard_size="5KB" if shards else "1GB")
    return model.float()


def mbert(folder, data_bin):
    from transformers import BertConfig, BertForPreTraining

    pieces = write_wordpiece(folder / "vocab.txt", TEXT, least=2)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = randomize(BertForPreTraining(BertConfig(vocab_size=len(pieces), max_position_embeddings=40, **sizes)))
    model.save_pretrained(folder)
    return model


def distilbert(folder, data_bin):
    pieces = write_wordpiece(folder / "vocab.txt", TEXT, least=2)
    sizes = dict(dim=16, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=len(pieces), max_position_embeddings=40)
    return saved(transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**sizes)), folder)


def roberta(folder, data_bin):
    """RoBERTa's class with XLM-R's tokenizer."""
    return like_xlm_roberta(folder, data_bin, "Roberta", 2)


def xlm_roberta_xl(folder, data_bin):
    """Rows of padding to a multiple of a power of two."""
    return like_xlm_roberta(folder, data_bin, "XLMRobertaXL", 2, multiple=64)


def camembert(folder, data_bin):
    return like_xlm_roberta(folder, data_bin, "Camembert", 5)


def like_xlm_roberta(folder, data_bin, family, special, multiple=1):
    """A model whose vocabulary has `special` symbols more than the SentencePiece model, padded to a `multiple`."""
    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    size = -(-(len(pieces) + special) // multiple) * multiple
    config = getattr(transformers, f"{family}Config")(vocab_size=size, **XLM_R)
    return saved(getattr(transformers, f"{family}ForMaskedLM")(config), folder)


def saved(model, folder):
    randomize(model).save_pretrained(folder)
    return model


def xlm(folder, data_bin):
    from transformers import XLMConfig, XLMWithLMHeadModel

    write_xlm(folder, TEXT)
    words = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    more = dict(n_langs=3, id2lang={0: "fr", 1: "de", 2: "en"}, pad_index=2)
    model = randomize(XLMWithLMHeadModel(XLMConfig(vocab_size=len(words), **XLM_SIZES, **more)))
    model.save_pretrained(folder)
    return model


def mbart(folder, data_bin):
    from transformers import MBartConfig, MBartForConditionalGeneration

    shutil.copy(data_bin / "sentencepiece.model", folder / "sentencepiece.bpe.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIDE.items()}
    more = dict(d_model=16, max_position_embeddings=40, scale_embedding=True)
    config = MBartConfig(vocab_size=len(pieces) - 3 + 4 + 25 + 1, **sizes, **more)
    model = randomize(MBartForConditionalGeneration(config))
    model.save_pretrained(folder)
    return model


def nllb(folder, data_bin):
    """NLLB with BPE pieces of SentencePiece and three languages; 2 rows are padding, as in the released models."""
    lines = sorted({*TEXT, *SENTENCES})
    options = dict(model_type="bpe", vocab_size=70, hard_vocab_limit=False, minloglevel=2)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / "sentencepiece.bpe"), **options
    )
    (folder / "sentencepiece.bpe.vocab").unlink()
    languages = ["eng_Latn", "deu_Latn", "fra_Latn"]
    tokenizer = transformers.NllbTokenizer.from_pretrained(folder, extra_special_tokens=languages)
    tokenizer.save_pretrained(folder)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIDE.items()}
    config = transformers.M2M100Config(
        vocab_size=len(tokenizer) + 2, d_model=16, max_position_embeddings=40, scale_embedding=True, **sizes
    )
    return saved(transformers.M2M100ForConditionalGeneration(config), folder)


def run(*arguments):
    model_convert.main([str(argument) for argument in arguments])


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
