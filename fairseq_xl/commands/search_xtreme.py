"""XTREME's retrieval tasks, BUCC and Tatoeba, with the encoder of a checkpoint, without training (Hu et al. 2020).

    fairseq-xl search xtreme runs/my/pretrain/checkpoint_best.pt data-bin/my download submission --langs de,fr

DOWNLOAD is the folder that download_data.sh of XTREME fills. A sentence embedding is the mean of one layer's hidden
states over the tokens, or the hidden state of the first token. BUCC: pairs whose ratio margin reaches a threshold,
chosen for each language by the highest F1 on its dev files. Tatoeba: for each English sentence, the number of the line
with the highest cosine. Without --layer and --pooling, the choice with the best average F1 on BUCC's dev files is used;
the sentence embeddings of all choices are then in memory. A sentence encoder that was a folder of sentence-transformers
embeds as `fairseq-xl embed` does. Writes DEST/TASK/test-XX.tsv, as submissions have them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairseq_xl.commands import CHECKPOINT, DATA, Options, argument, command, embedding_options
from fairseq_xl.errors import UserError, names_of
from fairseq_xl.evaluation.prediction_folders import Origin, check_replaceable, write_predictions
from fairseq_xl.evaluation.xtreme import LANGUAGES
from fairseq_xl.mining import bitext_mining
from fairseq_xl.mining.bitext_mining import Pair, Sentences, distinct, mine_distinct, read_sentences
from fairseq_xl.mining.nearest_neighbors import nearest

if TYPE_CHECKING:
    from fairseq_xl.inference.embedder import Embedders

BUCC, TATOEBA = "bucc2018", "tatoeba"
Choice = tuple[int, str]  # layer and pooling
Texts = dict[str, tuple[Sentences, Sentences]]  # by language: its sentences and the English ones


@command(
    CHECKPOINT,
    DATA,
    argument("download", "folder with bucc2018 and tatoeba", type=Path),
    argument("destination", "folder of the submission", type=Path, metavar="DEST"),
    argument("--langs", "only these languages", default="", metavar="XX,YY"),
    *embedding_options("default: select on BUCC's dev files, or as in sentence-transformers"),
)
def main(options: Options) -> dict[str, Any]:
    from fairseq_xl.checkpoints.identity import found_in
    from fairseq_xl.inference.embedder import Embedders, has_settings

    bucc, tatoeba = options.download / BUCC, options.download / TATOEBA
    languages = {name: LANGUAGES[name].split() for name in (BUCC, TATOEBA)}
    if options.langs:
        names = names_of("--langs", options.langs)
        if unknown := [code for code in names if not any(code in codes for codes in languages.values())]:
            raise UserError(f"--langs {options.langs}: neither BUCC nor Tatoeba of XTREME has {unknown[0]}")
        languages = {name: [code for code in codes if code in names] for name, codes in languages.items()}
    dev, test = (_read(bucc, languages[BUCC], f"-en.{split}") for split in ("dev", "test"))
    gold = {code: bitext_mining.read_gold(str(bucc / f"{code}-en.dev.gold"), sides) for code, sides in dev.items()}
    sentences = _read(tatoeba, languages[TATOEBA], "-en")
    for code, (_, english) in sentences.items():
        if english.ids != [str(index) for index in range(len(english.ids))]:
            raise UserError(f"{tatoeba / code}-en.en: expected a sentence on each line")
    file, _ = found_in(options.checkpoint)
    origins = {task: Origin.from_checkpoint(file, task) for task in languages}
    for task, codes in languages.items():
        check_replaceable(options.destination / task, origins[task], [f"test-{code}.tsv" for code in codes])
    if not dev and None in (options.layer, options.pooling) and not has_settings(options.checkpoint):
        raise UserError("give --layer and --pooling: without BUCC's dev files they cannot be selected")
    embed = Embedders(options, {"en"}.union(*languages.values()))
    choices = embed.choices(options.layer, options.pooling)
    dev_scores: dict[Choice, dict[str, dict[str, float]]] = {choice: {} for choice in choices}
    for code, sides in dev.items():
        for choice, pairs in _mined(embed, code, sides, choices).items():
            dev_scores[choice][code] = bitext_mining.best_threshold(pairs, gold[code])
    choice = max(choices, key=lambda choice: sum(scores["f1"] for scores in dev_scores[choice].values()))
    files: dict[str, dict[str, str]] = {BUCC: {}, TATOEBA: {}}
    for code, sides in test.items():
        threshold = dev_scores[choice][code]["threshold"]
        pairs = [pair for pair in _mined(embed, code, sides, [choice])[choice] if pair.margin >= threshold]
        lines = [f"{sides[0].ids[pair.source]}\t{sides[1].ids[pair.target]}\n" for pair in pairs]
        files[BUCC][f"test-{code}.tsv"] = "".join(lines)
    for code, sides in sentences.items():
        source, target = _embedded(embed, code, sides, [choice])
        _, rows = nearest(target[choice], source[choice], 1)  # of each English sentence
        files[TATOEBA][f"test-{code}.tsv"] = "".join(f"{sides[0].ids[row]}\n" for row in rows[:, 0].tolist())
    for task, texts in files.items():
        if texts:
            write_predictions(options.destination / task, origins[task], texts)
    table = []
    for (layer, pooling), by_code in dev_scores.items():
        dev_table = {code: bitext_mining.rounded(scores) for code, scores in by_code.items()}
        table.append({"layer": layer, "pooling": pooling, "dev": dev_table})
    return {"layer": choice[0], "pooling": choice[1], "choices": table}


def _read(folder: Path, languages: list[str], middle: str) -> Texts:
    """The sentences of FOLDER/XX{middle}.XX and of FOLDER/XX{middle}.en of each language XX."""
    return {
        code: (read_sentences(f"{folder}/{code}{middle}.{code}"), read_sentences(f"{folder}/{code}{middle}.en"))
        for code in languages
    }


def _embedded(
    embed: "Embedders", code: str, sides: tuple[Sentences, Sentences], choices: list[Choice]
) -> list[dict[Choice, np.ndarray]]:
    """Sentence embeddings of both sides: {choice: (n, C)} and {choice: (m, C)}."""
    return [embed(side.texts, language, choices) for side, language in zip(sides, (code, "en"))]


def _mined(
    embed: "Embedders", code: str, sides: tuple[Sentences, Sentences], choices: list[Choice]
) -> dict[Choice, Sequence[Pair]]:
    """Pairs by margin, in descending order, for each choice."""
    source, target = _embedded(embed, code, sides, choices)
    texts = distinct(sides[0].texts), distinct(sides[1].texts)
    return {choice: mine_distinct(texts, (source[choice], target[choice])) for choice in choices}
