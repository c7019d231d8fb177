"""Sums of a causal language model over held-out text. The command is `fairseq-xl score perplexity`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils

from fairseq_xl.checkpoints.identity import open_checkpoint
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import UNMARKED, XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation.ngrams import MODELS, Model, flat
from fairseq_xl.inference.model_loading import load_model

OBJECTIVE = "clm"
BATCH_TOKENS = 4096


@torch.no_grad()
def totals(checkpoint: str, data: Path, langs: str, split: str) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """{language: {nats, tokens, words, sentences}} of text, </s> included; `UserError` without CLM and without text."""
    trained = open_checkpoint(checkpoint, finite=False).identity.get("objectives", "")
    if OBJECTIVE not in trained.split(","):
        raise UserError(f"{checkpoint}: --objectives {OBJECTIVE} is needed; it was trained with {trained or 'none'}")
    model, task = load_model(checkpoint, data, objectives=OBJECTIVE, langs=langs)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    device, dictionary, objective = next(model.parameters()).device, task.dictionary, task.objectives[OBJECTIVE]
    counted = torch.from_numpy(word_markers(dictionary)).to(device)
    task.load_dataset(split)
    language_totals = {code: dict.fromkeys(("nats", "tokens", "words", "sentences"), 0.0) for code in langs.split(",")}
    missing = language_totals.keys() - task.datasets[split].corpora[OBJECTIVE].keys()
    if missing:
        raise UserError(f"{data} has no {split} text of {min(missing)}")
    batches = task.get_batch_iterator(task.datasets[split], max_tokens=BATCH_TOKENS).next_epoch_itr(shuffle=False)
    for sample in batches:
        batch = utils.apply_to_sample(lambda tensor: tensor.to(device), sample["batch"])
        (term,) = objective.loss(model, batch).values()
        target, sums = batch["target"], language_totals[sample["corpus"]]
        sums["nats"] += float(term.sum)
        sums["tokens"] += term.count
        sums["words"] += int(counted[target].sum())
        sums["sentences"] += int((target == dictionary.eos()).sum())
    return language_totals, {"length": objective.cfg.length, "sample_break_mode": objective.cfg.sample_break_mode}


def bigram_totals(data: Path, code: str, split: str) -> dict[str, float]:
    """{nats, tokens, words, sentences} of a language by a bigram model of its training text, ends included."""
    dictionary = XLDictionary.load(data / "dict.txt")
    end = dictionary.eos()
    train, held_out = (
        [text[line] for line in range(len(text))]
        for text in (open_text(data / code / name, code, len(dictionary)) for name in ("train", split))
    )
    text, model = flat(held_out, end), Model(train, np.append(dictionary.pieces, end), len(dictionary), end)
    probabilities = model.probabilities(text, np.arange(1, len(text)), MODELS["bigram"])
    return {
        "nats": -float(np.log(probabilities).sum()),
        "tokens": len(probabilities),
        "words": int(word_markers(dictionary)[text[1:]].sum()),
        "sentences": int((text[1:] == end).sum()),
    }


def word_markers(dictionary: XLDictionary) -> np.ndarray:
    """(V,) bool: pieces that begin (SentencePiece) or end (BPE) a word; `UserError` if pieces do not mark words."""
    if dictionary.word_mark is None:
        raise UserError(f"{UNMARKED}, so words cannot be counted")
    begins, ends = dictionary.word_boundaries
    return (begins | ends) & dictionary.is_piece
