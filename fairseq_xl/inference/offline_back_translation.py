"""Offline back-translation (Sennrich et al. 2016): sources that a model generates for monolingual text.

The pairs are written as a split of their own, ``DATA/en-de/back-de.en-de.{en,de}``: English generated from the German
training text. ``back-de.en-de.json``, the note, is written last and holds all that they depend on. `xl_translation
--back-translated` trains on them beside the parallel text. The command is `fairseq-xl back-translate`.
"""

import itertools
import logging
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_xl.data.corpora.sentence_pairs import SentencePairs
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.store.back_translated import back_translated_prefix, note_path, parts_path, read_note
from fairseq_xl.data.store.manifest import one_folder
from fairseq_xl.errors import UserError
from fairseq_xl.io.arrays import read_arrays, write_arrays
from fairseq_xl.io.files import FORMATS, write_json
from fairseq_xl.io.fingerprints import fingerprint, sha256_of
from fairseq_xl.io.folders import locked
from fairseq_xl.io.indexed_text import write_items
from fairseq_xl.io.step_records import begin_parts, difference
from fairseq_xl.models.beams import BACK_TRANSLATION
from fairseq_xl.tasks.supervised_translation import XLTranslationConfig, XLTranslationTask

logger = logging.getLogger(__name__)

CHUNK = 8192  # sentences of a part; a resumed run reuses finished parts


class Translator:
    """A translation model that translates binarized sentences from `source` into `target`.

    The checkpoint is of `xl_translation` or `xl_unsupervised_translation`, `options` are fields of fairseq's
    `GenerationConfig`: beam, sampling, sampling_topk, temperature, … `target_pieces_only` is as in
    `XLTranslationConfig`.
    """

    def __init__(
        self,
        checkpoint: str,
        data: str,
        source: str,
        target: str,
        options: dict[str, Any],
        target_pieces_only: bool,
        fp16: bool,
    ):
        cfg = XLTranslationConfig(
            data=data, source_lang=source, target_lang=target, target_pieces_only=target_pieces_only
        )
        self.task = XLTranslationTask.setup_task(cfg)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)], task=self.task)
        self.model = (model.half() if fp16 else model).eval().to(self.device)
        self.generator = self.task.build_generator([self.model], GenerationConfig(**options))

    def __call__(self, sentences: list[np.ndarray], max_tokens: int) -> list[np.ndarray]:
        """Translates sentences ``x </s>`` in batches of `max_tokens` tokens; --max-positions truncates them."""
        tokens = [torch.from_numpy(sentence.astype(np.int64)) for sentence in sentences]
        dataset = self.task.build_dataset_for_inference(tokens, [len(ids) for ids in tokens])
        batches = self.task.get_batch_iterator(
            dataset, max_tokens=max_tokens, max_positions=self.model.max_positions()
        ).next_epoch_itr(shuffle=False)
        dictionary, translations = self.task.dictionary, {}
        is_output = dictionary.is_piece | (np.arange(len(dictionary)) == dictionary.unk())
        for sample in batches:
            moved = {name: value.to(self.device) for name, value in sample["net_input"].items()}
            beams = self.task.inference_step(self.generator, [self.model], sample | {"net_input": moved})
            for index, (best, *_) in zip(sample["id"].tolist(), beams):
                symbols = best["tokens"].cpu().numpy()
                translations[index] = np.append(symbols[is_output[symbols]], dictionary.eos())
        return [translations[index] for index in range(len(sentences))]


class Parts:
    """The sentences of a corpus and the sources generated for them, in parts of `CHUNK` that a folder keeps."""

    def __init__(
        self, translator: Translator, corpus: Sentences, length: int, max_tokens: int, seed: int, folder: Path
    ):
        self.translator, self.corpus, self.length = translator, corpus, length
        self.max_tokens, self.seed, self.folder = max_tokens, seed, folder
        self.examples, _ = corpus.all_examples(length)
        self.starts = range(0, len(self.examples), CHUNK)

    def sentences(self, start: int) -> list[np.ndarray]:
        """The sentences of the part that begins at `start`."""
        texts = self.corpus.texts(self.examples[start : start + CHUNK], self.length)
        return [sentence for (sentence,) in texts]

    def sources(self, start: int) -> list[np.ndarray]:
        """The sources of a part: read if generated before, otherwise generated."""
        path = self.folder / f"{start:012}.npz"
        part = read_arrays(path)
        if part is None:
            torch.manual_seed(self.seed + start)
            generated = self.translator(self.sentences(start), self.max_tokens)
            part = {"tokens": np.concatenate(generated), "lengths": np.array([len(source) for source in generated])}
            write_arrays(path, **part)
        return np.split(part["tokens"], part["lengths"].cumsum()[:-1])


def back_translate(
    checkpoint: str,
    data: str,
    source: str,
    target: str,
    options: dict[str, Any],
    *,
    target_pieces_only: bool = False,
    fp16: bool = False,
    split: str = "train",
    length: int = 250,
    max_tokens: int = 8000,
    seed: int = 1,
) -> dict[str, Any]:
    """Generates sources in the language `source` for the monolingual text of `target`, and writes the pairs.

    A `Translator` from `target` into `source` generates them. Their length has the limit of back-translation in
    training, unless options set another one. Sentences of more than `length` tokens are left out. Returns statistics:
    the pairs, their mean lengths, and the share of sources that are empty. Raises `UserError` if another run is writing
    the same pairs.
    """
    data = str(one_folder(data, "back-translate"))
    if source == target:
        raise UserError(f"-s {source} -t {target}: name two languages")
    options = dict(zip(("max_len_a", "max_len_b"), BACK_TRANSLATION)) | options
    translator = Translator(checkpoint, data, target, source, options, target_pieces_only, fp16)
    dictionary, folder = translator.task.dictionary, translator.task.folder()
    corpus = Sentences(folder / target / split, target, len(dictionary))
    examples, sizes = corpus.all_examples(length)
    longest = min(1 + int(sizes.max()), translator.model.max_positions()[0])  # with <s>, truncated
    if longest > max_tokens:
        problem = f"{folder / target / split}: a sentence has {longest} tokens"
        raise UserError(f"{problem}, more than --max-tokens {max_tokens}: raise it")
    prefix = back_translated_prefix(folder, source, target)
    allowed = np.packbits(translator.task.language_pieces(source)) if target_pieces_only else None
    made_with: dict[str, Any] = {"checkpoint": sha256_of(checkpoint), "text": sha256_of(f"{corpus.path}.bin")}
    made_with |= {"dictionary": dictionary.digest(), "options": options}
    made_with |= {"target_pieces_only": None if allowed is None else zlib.crc32(allowed.tobytes()), "seed": seed}
    made_with |= {"split": split, "length": length, "sentences": len(examples), "max_tokens": max_tokens}
    made_with |= {"fp16": True} if fp16 else {}
    corpus_parts = Parts(translator, corpus, length, max_tokens, seed, parts_path(prefix))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with locked(Path(f"{prefix}.lock"), f"{prefix}: another `fairseq-xl back-translate` is writing there"):
        return _write_pairs(prefix, (source, target), corpus_parts, made_with, len(dictionary))


def _write_pairs(
    prefix: Path, codes: tuple[str, str], corpus_parts: Parts, made_with: dict[str, Any], symbols: int
) -> dict[str, Any]:
    """Writes the pairs at a prefix, unless there are some with an equal `made_with`; returns their statistics."""
    note, (source, target) = read_note(prefix), codes
    change = difference(note["made_with"], made_with) if note else ""
    if note and not change:
        try:
            SentencePairs(prefix, *codes)
            logger.info("%s exists: skipped", prefix)
            return {name: value for name, value in note.items() if name not in ("format", "fingerprints")}
        except UserError as error:  # files that are not complete, or changed
            logger.warning("%s", error)
    if change:
        logger.warning("%s: the pairs of other settings or text are replaced (%s)", prefix, change)
    begin_parts(corpus_parts.folder, made_with)
    sentences = len(corpus_parts.examples)
    for start in corpus_parts.starts:
        corpus_parts.sources(start)
        logger.info("%s: %d of %d sentences", prefix, min(start + CHUNK, sentences), sentences)
    note_path(prefix).unlink(missing_ok=True)  # the pairs are not complete until it is there again
    lengths = {
        code: write_items(f"{prefix}.{code}", itertools.chain.from_iterable(map(side, corpus_parts.starts)), symbols)
        for code, side in ((source, corpus_parts.sources), (target, corpus_parts.sentences))
    }
    result = {
        "made_with": made_with,
        "pairs": sentences,
        "mean_length": {code: round(float(np.mean(sizes) - 1), 2) for code, sizes in lengths.items()},  # without </s>
        "empty_sources": round(100 * float(np.mean(lengths[source] == 1)), 2),
    }
    fingerprints = {}
    for code, sizes in lengths.items():
        for end, counts in (("idx", {"lines": len(sizes), "tokens": int(sizes.sum())}), ("bin", {})):
            path = Path(f"{prefix}.{code}.{end}")
            fingerprints[path.name] = fingerprint(path, **counts)
    note = {"format": FORMATS["note of added files"]} | result | {"fingerprints": fingerprints}
    write_json(note_path(prefix), note)
    shutil.rmtree(corpus_parts.folder, ignore_errors=True)
    return result
