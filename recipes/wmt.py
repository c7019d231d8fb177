"""Runs the steps of wmt.sh: reads and encodes the text, fine-tunes, translates and computes BLEU."""

import os
import sys
from typing import Any

import yaml

from fairseq_xl.errors import UserError
from fairseq_xl.io import error_reporting
from fairseq_xl.io.files import replacing
from recipes.commands import Commands
from recipes.wmt_arguments import ROOT, Arguments, check, corpus_content, pair_of, parse, vocabulary_files


def complete_corpora(arguments: Arguments, commands: Commands) -> None:
    """Reads each pair that its corpus folder lacks, or whose Romanian text does not match --keep-diacritics."""
    if arguments.back and "ro" in arguments.monolingual and arguments.diacritics == "without":
        commands.python("fairseq_xl", "data", "romanian", "--check", arguments.monolingual["ro"])
    for pair in arguments.pairs:
        folder, needed = arguments.folder(pair), arguments.pairs if arguments.corpus else [pair]
        pairs, diacritics = corpus_content(folder)
        if pair not in pairs or (pair == "en-ro" and diacritics != arguments.diacritics):
            options = ["--remove-diacritics"] if "en-ro" in needed and arguments.diacritics == "without" else []
            commands.python("fairseq_xl", "data", "read", "wmt", folder, "--pairs", ",".join(needed), *options)
        if pair == "en-ro":
            sys.stderr.write(f"wmt.sh: {folder} has Romanian text {arguments.diacritics} diacritics\n")


def description(arguments: Arguments) -> dict[str, Any]:
    """Returns the corpus description."""
    bitext: dict[str, dict[str, Any]] = {}
    for pair in arguments.pairs:
        texts = f"{arguments.folder(pair)}/bitext"
        bitext[pair] = {split: f"{texts}/{split}.{pair}" for split in ("train", "valid", "test")}
    if arguments.clean:
        bitext["en-fr"]["clean"] = yaml.safe_load(arguments.clean)
    content: dict[str, Any] = {"languages": arguments.languages, "bitext": bitext}
    if arguments.back:
        content["monolingual"] = {code: {"train": text} for code, text in arguments.monolingual.items()}
    return content


def configurations(arguments: Arguments) -> list[str]:
    """Returns --config and the system's file for a model of one pair, if it exists."""
    path = f"{ROOT}/recipes/{arguments.system}/config/translate-{arguments.pairs[0]}.yaml"
    return ["--config", path] if len(arguments.pairs) == 1 and os.path.isfile(path) else []


def record(arguments: Arguments, commands: Commands) -> None:
    """Records the settings of OUTPUT_DIR; fails if it has others."""
    recipes, data = f"{ROOT}/recipes", arguments.data
    made_with = [arguments.system, ",".join(arguments.directions), arguments.checkpoint]
    made_with += [f"{data}/{name}" for name in vocabulary_files(data)]
    made_with += dict.fromkeys(f"{arguments.folder(pair)}/manifest.json" for pair in arguments.pairs)
    made_with += [f"{recipes}/{arguments.system}/config/translate.yaml", f"{recipes}/xlm/config/generate.yaml"]
    if arguments.clean:
        made_with.append(f"clean {arguments.clean}")
    made_with += [*configurations(arguments), *arguments.flags]
    if arguments.back:
        made_with += ["--back-translate", *arguments.back]
    commands.python("recipes.settings", arguments.output, *made_with)


def encode(arguments: Arguments, commands: Commands) -> None:
    """Encodes the text, and adds back-translated pairs."""
    config, data = f"{arguments.output}/corpus.yaml", f"{arguments.output}/data-bin"
    with replacing(config) as file:
        file.write(yaml.safe_dump(description(arguments), allow_unicode=True, sort_keys=False).encode())
    commands.python("fairseq_xl", "data", "prepare", config, data, "--vocabulary-from", arguments.data)
    for direction in arguments.directions if arguments.back else []:
        (source, target), (model, *flags) = direction.split("-"), arguments.back
        commands.python("fairseq_xl", "back-translate", model, data, "-s", source, "-t", target, *flags)


def train(arguments: Arguments, commands: Commands) -> None:
    """Fine-tunes with translate.sh of the system."""
    script, output, checkpoint = f"{arguments.system}/translate.sh", arguments.output, arguments.checkpoint
    words = [*configurations(arguments), *arguments.flags]
    if arguments.system == "veco":
        words.insert(0, checkpoint)
    elif checkpoint != "random":
        words += ["--init-from", checkpoint]
    if arguments.back:
        words.append("--back-translated")
    words += ["--lang-pairs", ",".join(arguments.directions)]
    commands.run("bash", f"{ROOT}/recipes/{script}", f"{output}/data-bin", output, *words)


def score(arguments: Arguments, commands: Commands, direction: str) -> None:
    """Translates the test set of a direction and computes BLEU."""
    pair, (source, target) = pair_of(direction), direction.split("-")
    output, folder = arguments.output, f"{arguments.output}/{direction}"
    model = "checkpoint_best.pt" if arguments.system == "xlm" else "average.pt"
    reference = f"{arguments.folder(pair)}/bitext/test.{pair}.{target}"
    words = [f"{output}/data-bin", f"{output}/{model}", folder, source, target, reference]
    commands.run("bash", f"{ROOT}/recipes/xlm/score.sh", *words)
    if direction == "en-ro":
        score_with_other_diacritics(arguments, commands, folder, reference)


def score_with_other_diacritics(arguments: Arguments, commands: Commands, folder: str, reference: str) -> None:
    """Computes BLEU with the reference with diacritics, if the model has none, or of both texts without them."""
    hypotheses = f"{folder}/hypotheses.ro"
    if arguments.diacritics == "without":
        diacritics, texts = "with", [hypotheses, f"{arguments.folder('en-ro')}/bitext/test-diacritics.en-ro.ro"]
    else:
        diacritics, texts = (
            "without",
            [f"{folder}/{name}-without-diacritics.ro" for name in ("hypotheses", "reference")],
        )
        for path, plain in zip((hypotheses, reference), texts):
            with open(path, "rb") as stdin, replacing(plain) as stdout:
                commands.python("fairseq_xl", "data", "romanian", "--remove-diacritics", stdin=stdin, stdout=stdout)
    if os.path.isfile(texts[1]):
        path = f"{folder}/bleu-{diacritics}-diacritics.json"
        commands.python("fairseq_xl", "score", "bleu", "--plain", *texts, "--lang", "ro", "--output", path)


def main(words: list[str]) -> None:
    error_reporting.install()
    try:
        arguments = parse(words)
        check(arguments)
    except UserError as error:
        sys.stderr.write(f"wmt.sh: {error}\n")
        sys.exit(2)
    commands = Commands()
    complete_corpora(arguments, commands)
    os.makedirs(arguments.output, exist_ok=True)
    record(arguments, commands)
    arguments.corpus = arguments.corpus and os.path.abspath(arguments.corpus)  # paths in corpus.yaml
    encode(arguments, commands)
    train(arguments, commands)
    for direction in arguments.directions:
        score(arguments, commands, direction)


if __name__ == "__main__":
    main(sys.argv[1:])
