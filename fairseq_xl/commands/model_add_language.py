"""Adds a language to a published encoder: pieces, training, and a folder of the kind that came in, with scores.

    fairseq-xl model add-language downloads/MiniLM --lang sw --pairs en-sw=corpora/train --test en-de=corpora/test \\
        --text sw=corpora/mono.sw de=corpora/mono.de --pieces 5000 --to models/MiniLM-sw

FOLDER is of transformers or sentence-transformers. Its vocabulary gets pieces that are learned from the text of the new
language, and begin as the mean of the old pieces of their text. A model that predicts masked tokens is then trained to
predict those of the new language and of the old text. Another one, such as a sentence encoder, is trained so that its
embeddings of both sides of the pairs, and of the old text, become the original model's embeddings of the old language's
sentences (Reimers & Gurevych 2020). OUT also gets scores.json: scores of the model that came in, with the new
pieces, and after training, on pairs and text that are held out. OUT.work has the data and the checkpoints of the
training; run the same command again to continue it.
"""

import importlib
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import fairseq_xl
from fairseq_xl.commands import PROMPT, Options, argument, command, several
from fairseq_xl.commands.model_convert import main as convert
from fairseq_xl.commands.model_extend_vocabulary import main as extend
from fairseq_xl.errors import UserError, in_range, positive_integer
from fairseq_xl.io import bounds
from fairseq_xl.io.files import json_object, write_json, write_lines
from fairseq_xl.io.fingerprints import sha256_of, symbols_digest
from fairseq_xl.io.folders import new_folder

logger = logging.getLogger(__name__)

PIECES = in_range(int, "1 or more", bounds.LARGEST_VOCABULARY)
ARGUMENTS, TRAINING, LAST = "arguments.json", "training.yaml", "run/checkpoint_last.pt"


@command(
    argument("folder", "folder of the model, of transformers or sentence-transformers"),
    argument("--lang", "language to add", required=True),
    several("--text", "text of the new language and of old ones", "XX=FILE"),
    several("--pairs", "aligned files PREFIX.XX and PREFIX.YY of an old language and the new one", "XX-YY=PREFIX"),
    several("--test", "pairs for scores alone, of any languages", "XX-YY=PREFIX"),
    argument("--pieces", "number of new pieces", PIECES, required=True, metavar="N"),
    argument("--to", "new folder to write", required=True, metavar="OUT"),
    PROMPT,
    argument("--share", "share of old languages in the text", in_range(float, "probability"), 0.5, metavar="P"),
    argument("--updates", "updates of the training", positive_integer, 10000, metavar="N"),
    argument("--config", "YAML file of flags of fairseq-train that override OUT.work/training.yaml", metavar="FILE"),
    argument("--jobs", "processes that prepare the text", positive_integer, 1, metavar="N"),
)
def main(options: Options) -> dict[str, Any]:
    fairseq_xl.register()
    from fairseq_xl.inference import language_addition

    origin, output, work = Path(options.folder), Path(options.to), Path(f"{options.to}.work")
    if output.exists():
        raise UserError(f"{output} exists: name a new folder")
    addition = language_addition.read_addition(origin, options)
    settings = {name: value for name, value in vars(options).items() if name not in ("json", "output_json")}
    files = [sha256_of(path) for path in sorted(origin.iterdir()) if path.is_file()]
    settings["sha256"] = symbols_digest([*files, repr((addition.examples, addition.pairs, addition.lines))])
    if not work.exists():
        with new_folder(work) as folder:
            _prepare(addition, options, folder)
            write_json(folder / ARGUMENTS, settings)
    elif json_object(work / ARGUMENTS) != settings:
        raise UserError(f"{work} was begun with other arguments or files: repeat them, or remove it")
    configs = [work / TRAINING, *([options.config] if options.config else [])]
    saved = {"save_dir": work / "run", "init_from": work / "extended"}
    fairseq_xl.train(work / "data", configs, **saved)
    for name in ("trained", "export"):
        shutil.rmtree(work / name, ignore_errors=True)
    language_addition.copy_trained(work / "extended", work / LAST, work / "trained")
    dtype = str(addition.published.dtype).removeprefix("torch.")
    kind = "sentence-transformers" if addition.settings.files else "transformers"
    convert([str(work / "trained"), str(work / "export"), "--to", kind, "--dtype", dtype])
    folders = {"before": work / "imported", "extended": work / "extended", "trained": work / "trained"}
    result = {"settings": settings, **language_addition.scores(addition, folders)}
    write_json(work / "export/scores.json", result)
    os.rename(work / "export", output)
    logger.info("%s: written; %s has the training, and can be removed", output, work)
    return result


def _prepare(addition: Any, options: Options, folder: Path) -> None:
    """Writes the model that came in, the one with new pieces, the binarized text, and the flags of the training."""
    from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
    from fairseq_xl.data.vocabulary.subwords import FILES, vocabulary_kind
    from fairseq_xl.inference import language_addition

    imported, extended, data = (folder / name for name in ("imported", "extended", "data"))
    convert([options.folder, str(imported)])
    if not (imported / FILES[vocabulary_kind(imported)][-1]).is_file():
        raise UserError(
            f"{options.folder} has no tokenizer: expected tokenizer.json, sentencepiece.bpe.model or vocab.txt"
        )
    description = language_addition.write_corpus(addition, folder)
    write_lines(folder / "pieces.txt", addition.new_text)
    symbols = ["--langs", options.lang] if addition.published.languages else []
    words = ["--data", str(imported), "--output", str(extended), "--text", str(folder / "pieces.txt")]
    extend([str(imported), *words, "--pieces", str(options.pieces), *symbols])
    before, after = (len(XLDictionary.load(path / "dict.txt").pieces) for path in (imported, extended))
    if after - before < options.pieces:
        raise UserError(f"--pieces {options.pieces}: the text of {options.lang} gives {after - before} new pieces")
    importlib.import_module("preprocess.pipeline").prepare(description, data, options.jobs, extended)
    if addition.distills:
        language_addition.write_teacher(addition, imported, data)
    write_json(folder / TRAINING, language_addition.training_flags(addition, options.updates))
