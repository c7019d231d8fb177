"""Compares trained models of LibreOffice help with their exports to transformers and sentence-transformers.

    python -m recipes.interchange.real_models classes CHECKPOINT DATA FOLDER XX=TASK_FILE ...
    python -m recipes.interchange.real_models translations CHECKPOINT DATA FOLDER XX=TEXT YY=TEXT
    python -m recipes.interchange.real_models embeddings CHECKPOINT DATA FOLDER LAYER XX=TEXT ...
    python -m recipes.interchange.real_models ids DATA FOLDER XX=TEXT ...

FOLDER is what `fairseq-xl convert` wrote. Each prints a JSON line.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import sacrebleu
import torch

import fairseq_xl
from fairseq_xl.data.framing import Framing
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.data.vocabulary.text_encoder import TextEncoder
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.text import is_blank

BATCH = 32  # texts
SENTENCES = 300  # that are translated


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _texts(named: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """XX=FILE -> the language and the lines of the file that hold text."""
    for each in named:
        language, _, file = each.partition("=")
        yield language, [line for line in read_lines(file) if not is_blank(line)]


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[begin : begin + BATCH] for begin in range(0, len(items), BATCH))


@torch.no_grad()
def classes(checkpoint: str, data: str, folder: str, *files: str) -> dict[str, Any]:
    """Accuracy of a classifier here and in transformers, equal predictions, the largest difference of probabilities.

    The files have the label and the text, separated by a tab.
    """
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder).eval(), _tokenizer(folder)
    loaded, found = fairseq_xl.load(checkpoint, data=data), {}
    for language, lines in _texts(files):
        labels, texts = zip(*(line.split("\t", 1) for line in lines))
        ours, theirs, largest = [], [], 0.0
        for batch in _batches(texts):
            made = tokenizer(list(batch), return_tensors="pt", padding=True, truncation=True)
            probabilities = model(**made).logits.softmax(-1)
            theirs += [model.config.id2label[number] for number in probabilities.argmax(-1).tolist()]
            predicted = loaded.predict(list(batch), language)
            ours += [each["label"] for each in predicted]
            pairs = zip(predicted, probabilities.max(-1).values.tolist())
            differences = [abs(each["probability"] - other) for each, other in pairs]
            largest = float(np.maximum(largest, np.max(differences)))  # NaN stays
        found[language] = {
            "texts": len(texts),
            "equal": sum(one == other for one, other in zip(ours, theirs)),
            "accuracy here": round(100 * sum(one == label for one, label in zip(ours, labels)) / len(labels), 2),
            "accuracy there": round(100 * sum(one == label for one, label in zip(theirs, labels)) / len(labels), 2),
            "probability": f"{largest:.1e}",
        }
    return found


@torch.no_grad()
def translations(checkpoint: str, data: str, folder: str, source: str, target: str) -> dict[str, Any]:
    """BLEU of greedy translations here and in transformers, and how many are equal."""
    from transformers import AutoModelForSeq2SeqLM

    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), _tokenizer(folder)
    loaded = fairseq_xl.load(checkpoint, data=data)
    (language, sources), (other, targets) = (
        (each.partition("=")[0], read_lines(each.partition("=")[2])) for each in (source, target)
    )
    pairs = [pair for pair in zip(sources, targets) if not any(map(is_blank, pair))][:SENTENCES]
    ours = loaded.translate([text for text, _ in pairs], language, other, beam=1)
    theirs: list[str] = []
    for batch in _batches([text for text, _ in pairs]):
        made = tokenizer(list(batch), return_tensors="pt", padding=True, truncation=True)
        written = model.generate(**made, num_beams=1, do_sample=False, max_new_tokens=200)
        theirs += tokenizer.batch_decode(written, skip_special_tokens=True)
    references = [[text for _, text in pairs]]
    scores = {
        "bleu here": sacrebleu.corpus_bleu(ours, references),
        "bleu there": sacrebleu.corpus_bleu(theirs, references),
    }
    equal = sum(one.split() == two.split() for one, two in zip(ours, theirs))
    return {"sentences": len(pairs), "equal": equal} | {name: round(each.score, 2) for name, each in scores.items()}


def embeddings(checkpoint: str, data: str, folder: str, layer: str, *files: str) -> dict[str, Any]:
    """The largest difference of sentence embeddings here and in sentence-transformers, by language."""
    from sentence_transformers import SentenceTransformer

    theirs, loaded = SentenceTransformer(folder, device="cpu"), fairseq_xl.load(checkpoint, data=data)
    found = {}
    for language, lines in _texts(files):
        texts = lines[:SENTENCES]
        ours = loaded.encode(texts, lang=language, layer=int(layer))
        found[language] = {"texts": len(texts), "difference": f"{abs(ours - theirs.encode(texts)).max():.1e}"}
    return found


def ids(data: str, folder: str, *files: str) -> dict[str, Any]:
    """Lines whose token ids differ between transformers' tokenizer and this package, by language."""
    dictionary, tokenizer = XLDictionary.load(f"{data}/dict.txt"), _tokenizer(folder)
    encode, framing = TextEncoder(data, dictionary), Framing.of("xl", dictionary)
    found = {}
    for language, lines in _texts(files):
        made = [row for batch in _batches(lines) for row in tokenizer(list(batch))["input_ids"]]
        expected = [framing.sentence(encode(line, language)).tolist() for line in lines]
        different = sum(one != other for one, other in zip(made, expected))
        found[language] = {"lines": len(lines), "different": different, "tokens": sum(map(len, expected))}
    return found


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "classes": classes,
    "translations": translations,
    "embeddings": embeddings,
    "ids": ids,
}


def main() -> None:
    """Runs a comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    sys.stdout.write(json.dumps(STEPS[options.step](*options.arguments), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
