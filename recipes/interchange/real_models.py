"""Compares trained models of LibreOffice help with their exports to transformers and sentence-transformers.

    python -m recipes.interchange.real_models classes CHECKPOINT DATA FOLDER XX=TASK_FILE ...
    python -m recipes.interchange.real_models translations CHECKPOINT DATA FOLDER XX=TEXT YY=TEXT
    python -m recipes.interchange.real_models embeddings CHECKPOINT DATA FOLDER LAYER XX=TEXT ...
    python -m recipes.interchange.real_models ids DATA FOLDER XX=TEXT ...

FOLDER is an output of `fairseq-xl model convert`. Each prints a JSON line.
"""

import argparse
import json
import operator
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
SENTENCES = 300  # maximum number of translated sentences


def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _texts(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the language and the lines with text of each XX=FILE."""
    for argument in arguments:
        language, _, file = argument.partition("=")
        yield language, [line for line in read_lines(file) if not is_blank(line)]


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[begin : begin + BATCH] for begin in range(0, len(items), BATCH))


@torch.no_grad()
def classes(checkpoint: str, data: str, folder: str, *files: str) -> dict[str, Any]:
    """Compares accuracy, predictions and probabilities of a classifier here and in transformers.

    The files have the label and the text, separated by a tab.
    """
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder).eval(), _tokenizer(folder)
    loaded, results = fairseq_xl.load(checkpoint, data=data), {}
    for language, lines in _texts(files):
        labels, texts = zip(*(line.split("\t", 1) for line in lines))
        labels_here, labels_there, largest = [], [], 0.0
        for batch in _batches(texts):
            inputs = tokenizer(list(batch), return_tensors="pt", padding=True, truncation=True)
            probabilities = model(**inputs).logits.softmax(-1)
            labels_there += [model.config.id2label[i] for i in probabilities.argmax(-1).tolist()]
            predicted = loaded.predict(list(batch), language)
            labels_here += [prediction["label"] for prediction in predicted]
            pairs = zip(predicted, probabilities.max(-1).values.tolist())
            differences = [abs(prediction["probability"] - second) for prediction, second in pairs]
            largest = float(np.maximum(largest, np.max(differences)))  # NaN stays
        results[language] = {
            "texts": len(texts),
            "equal": sum(map(operator.eq, labels_here, labels_there)),
            "accuracy here": round(100 * sum(map(operator.eq, labels_here, labels)) / len(labels), 2),
            "accuracy there": round(100 * sum(map(operator.eq, labels_there, labels)) / len(labels), 2),
            "probability": f"{largest:.1e}",
        }
    return results


@torch.no_grad()
def translations(checkpoint: str, data: str, folder: str, source: str, target: str) -> dict[str, Any]:
    """Compares greedy translations here and in transformers: BLEU, and the number of equal ones."""
    from transformers import AutoModelForSeq2SeqLM

    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), _tokenizer(folder)
    loaded = fairseq_xl.load(checkpoint, data=data)
    (language, sources), (target_language, targets) = (
        (argument.partition("=")[0], read_lines(argument.partition("=")[2])) for argument in (source, target)
    )
    pairs = [pair for pair in zip(sources, targets) if not any(map(is_blank, pair))][:SENTENCES]
    texts_here = loaded.translate([text for text, _ in pairs], language, target_language, beam=1)
    texts_there: list[str] = []
    for batch in _batches([text for text, _ in pairs]):
        inputs = tokenizer(list(batch), return_tensors="pt", padding=True, truncation=True)
        written = model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=200)
        texts_there += tokenizer.batch_decode(written, skip_special_tokens=True)
    references = [[text for _, text in pairs]]
    scores = {
        "bleu here": sacrebleu.corpus_bleu(texts_here, references),
        "bleu there": sacrebleu.corpus_bleu(texts_there, references),
    }
    equal = sum(first.split() == two.split() for first, two in zip(texts_here, texts_there))
    return {"sentences": len(pairs), "equal": equal} | {name: round(bleu.score, 2) for name, bleu in scores.items()}


def embeddings(checkpoint: str, data: str, folder: str, layer: str, *files: str) -> dict[str, Any]:
    """Returns the largest difference of sentence embeddings here and in sentence-transformers, by language."""
    from sentence_transformers import SentenceTransformer

    exported, loaded = SentenceTransformer(folder, device="cpu"), fairseq_xl.load(checkpoint, data=data)
    results = {}
    for language, lines in _texts(files):
        texts = lines[:SENTENCES]
        vectors = loaded.encode(texts, lang=language, layer=int(layer))
        results[language] = {"texts": len(texts), "difference": f"{abs(vectors - exported.encode(texts)).max():.1e}"}
    return results


def ids(data: str, folder: str, *files: str) -> dict[str, Any]:
    """Counts the lines with other token ids in transformers' tokenizer than in this package, by language."""
    dictionary, tokenizer = XLDictionary.load(f"{data}/dict.txt"), _tokenizer(folder)
    encode, framing = TextEncoder(data, dictionary), Framing.of("xl", dictionary)
    results = {}
    for language, lines in _texts(files):
        rows = [row for batch in _batches(lines) for row in tokenizer(list(batch))["input_ids"]]
        expected = [framing.sentence(encode(line, language)).tolist() for line in lines]
        different = sum(first != second for first, second in zip(rows, expected))
        results[language] = {"lines": len(lines), "different": different, "tokens": sum(map(len, expected))}
    return results


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
