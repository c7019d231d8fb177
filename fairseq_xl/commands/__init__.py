"""The command ``fairseq-xl``, also ``python -m fairseq_xl``: one module of this package for each subcommand.

This module imports neither torch nor fairseq, so that ``--help`` and scores need not wait for them.
"""

import difflib
import importlib
import logging
import os
import sys
import warnings
from typing import NoReturn

from fairseq_xl.io import error_reporting
from fairseq_xl.io.signals import ending_by_exception
from fairseq_xl.io.versions import version

#: subcommand -> what it does; its module has the same name with underscores, and a function `main(arguments)`
COMMANDS = {
    "average": "average checkpoints of one model",
    "back-translate": "generate sources for monolingual text, to train translation on more pairs",
    "convert": "convert published models to checkpoints, checkpoints to transformers, fairseq, sentence-transformers",
    "curves": "draw training curves from logs",
    "describe": "say what a file of weights or a folder holds",
    "dictionary": "write the dictionary of a published model",
    "embed": "write the sentence embeddings of lines of text",
    "export-onnx": "write a model as ONNX files for onnxruntime",
    "extend-vocabulary": "add pieces and languages to the vocabulary of a checkpoint",
    "join-embeddings": "join mapped embeddings of several languages for a joint vocabulary",
    "language-module": "extract, pack, list or make language modules (MonoTrans)",
    "map-embeddings": "map the embeddings of one language into those of another",
    "mine-bitext": "find parallel sentences in the text of two languages, without training",
    "mine-negatives": "find hard negatives for paraphrase classification (Unicoder)",
    "ngram-entropy": "bits per token of n-gram models, to compare the loss of MLM with",
    "predict": "classes, tags, answers, translations or titles of unlabeled text, line by line",
    "probe minimal-pairs": "grammatical and ungrammatical sentences, by a masked language model",
    "probe scws": "similarity of words in context, from a frozen model's hidden states",
    "probe wic": "word senses in context, by a classifier on hidden states",
    "rehearse": "estimate GPU memory and updates of a training without text or GPU, then train a tiny model",
    "results": "write a page of results, HTML, from scores of XGLUE and XTREME",
    "retrieve": "find the translations of sentences with an encoder, without training",
    "retrieve-xtreme": "BUCC and Tatoeba of XTREME with an encoder, without training",
    "score baselines": "compute baselines without a pre-trained model",
    "score bleu": "BLEU of generated translations",
    "score classification": "accuracy and macro-F1 of predictions, per language",
    "score generation": "BLEU, ROUGE-L and wrong language of generated text, per language",
    "score perplexity": "perplexity of a causal language model, per prediction and by word",
    "score question-answering": "exact match and F1 of answers, per language",
    "score ranking": "nDCG of ranked texts, per language",
    "score tagging": "F1 of spans and accuracy of words, per language",
    "score word-embeddings": "cosine and distance of the embeddings of translated words",
    "score xglue": "scores of XGLUE's tasks, from files of predictions",
    "score xtreme": "scores of XTREME's tasks, from files of predictions",
    "submission": "write predictions as submissions of XGLUE or XTREME have them",
    "skipgram": "train skip-gram embeddings of a language's pieces",
    "trim-vocabulary": "cut the vocabulary of a checkpoint to what a corpus uses",
}
CONTINUING = ("back-translate", "mine-negatives")  # a stopped run continues
HELP = ("-h", "--help")
CLOSED = 141  # status of a program that SIGPIPE ends, 128 + 13


def main(arguments: list[str] | None = None) -> None:
    """Runs a subcommand with `arguments`, by default those of the command line.

    Ends with status `CLOSED` and no message if the reader of its output, such as `head`, has closed it.
    """
    try:
        try:
            _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # the interpreter writes what is left of the output when it ends
        os.close(nowhere)
        sys.exit(CLOSED)


def _run(words: list[str]) -> None:
    error_reporting.install()
    if words == ["--version"]:
        listed = (f"{package} {version(package)}" for package in ("fairseq_xl", "fairseq", "torch"))
        sys.stdout.write(f"{', '.join(listed)}\n")
        return
    name = next((" ".join(words[:count]) for count in (1, 2) if " ".join(words[:count]) in COMMANDS), None)
    if name is None:
        _help_or_refuse(words)
    shown = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)  # of `import fairseq`
    logging.basicConfig(format=shown, datefmt="%Y-%m-%d %H:%M:%S", level=logging.INFO)
    try:
        with ending_by_exception():
            command = importlib.import_module(f"{__name__}.{name.replace(' ', '_').replace('-', '_')}")
            command.main(words[len(name.split()) :])
    except ModuleNotFoundError as error:
        if str(error.name).startswith("fairseq_xl"):
            raise
        sys.exit(
            f"fairseq_xl: error: the package {error.name} is missing: `. recipes/environment.sh` in the repository "
            "prepares and activates the environment"
        )
    except KeyboardInterrupt:
        sys.stderr.write(f"Interrupted{': run the same command to continue' if name in CONTINUING else ''}\n")
        sys.exit(130)


def _help_or_refuse(words: list[str]) -> NoReturn:
    """Shows the help of ``fairseq-xl`` or ``fairseq-xl score``, or refuses a subcommand that does not exist."""
    group = [] if not words or words[0] in HELP else words[:1]
    commands = {name: description for name, description in COMMANDS.items() if name.split()[: len(group)] == group}
    rest = words[len(group) :]
    if not commands or (rest and rest[0] not in HELP):
        wrong, expected = " ".join(words[: len(group) + bool(commands)]), ", ".join(commands or COMMANDS)
        similar = [
            name for text in (" ".join(words[:2]), wrong) for name in difflib.get_close_matches(text, COMMANDS, 1)
        ]
        hint = f"did you mean {similar[0]!r}? Otherwise " if similar else ""
        sys.stderr.write(f"fairseq-xl: error: there is no command {wrong!r}: {hint}expected one of {expected}\n")
        sys.exit(2)
    title = " ".join(["fairseq-xl", *group])
    width = max(map(len, commands)) + 2
    listed = "".join(f"  {name:<{width}}{description}\n" for name, description in commands.items())
    sys.stdout.write(f"usage: {title} COMMAND ...\n\n{listed}\n`fairseq-xl COMMAND --help` shows its arguments.\n")
    sys.exit(0 if rest else 2)
