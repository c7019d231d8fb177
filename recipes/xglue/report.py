"""Tables of titles and of denoising from their scores: ``python -m recipes.xglue.report OUTPUT --models … …``.

Prints them, with outputs beside source and reference, and writes OUTPUT/report.md. What was not run is an empty cell.
Reads what run.sh wrote: OUTPUT/MODEL/ntg-MODE-SEED and OUTPUT/MODEL/denoise. OUTPUT may also be a JSON file of
``results/``. Without the corpus, ``--titles``, there are no first words and no outputs.
"""

import argparse
import itertools
import statistics
import sys

from fairseq_xl import error_reporting
from fairseq_xl.evaluation.baselines import titles as first_words_of
from fairseq_xl.evaluation.bleu import detokenized, read_lines
from fairseq_xl.evaluation.generation import score
from recipes.lohelp.report import NAMES, between, existing, mean_share, over_what, read, table, tokens_read

MODES = {"pivot": "{} alone", "multi-language": "all languages together"}
SCORES = {"bleu": "BLEU-4", "rouge_l": "ROUGE-L", "wrong_language": "outputs in a wrong language, %"}
SHOWN = 10  # outputs of a language
LONGEST = 200  # characters of a source that are shown
RESAMPLES = 1000  # of the baseline's intervals


def over_examples(entry):
    """A score with its bootstrap interval, of which sacreBLEU gives half the width alone; empty if there is none."""
    value, interval = entry["score"], entry.get("interval")
    if value is None:
        return ""
    return between(value, *interval) if isinstance(interval, list) else f"{value:.1f} ± {interval:.1f}"


def cells(scores, name, languages):
    """Cells of each language and of the average, of the scores of all seeds: of one, intervals over its examples.

    A cell is empty where an output has no score: it has no letter.
    """
    columns = [[found["languages"][code][name] for found in scores] for code in languages]
    values = [[entry["score"] for entry in column] for column in columns]
    known = all(None not in column for column in values)
    averages = [statistics.mean(seed) for seed in zip(*values)] if known else []
    if len(scores) == 1:
        return [*(over_examples(*column) for column in columns), f"{averages[0]:.1f}" if known else ""]
    return ["" if None in column else mean_share(column) for column in values] + [mean_share(averages) if known else ""]


def complete(path, languages):
    """The score file of a folder; None if it is not there or lacks a language."""
    found = read(path / "scores.json")
    return found if found and found["languages"].keys() >= set(languages) else None


def first_words(files, languages):
    """{language: scores of titles that are the first words of the sources, as many as score best in validation}"""
    scores = {}
    for language in languages:
        hypotheses, _ = first_words_of(files, language, "test")
        references = read_lines(files / f"test.{language}.tgt")
        scores[language] = score(hypotheses, references, language, [*languages, "en"], RESAMPLES)
    return scores


def titles(folder, models, mode, name, languages, seeds, baseline=None):
    """A row of one score for each model, one of the baseline, and for wrong languages one of the references."""
    rows = []
    references = None
    for model in models:
        scores = [complete(folder / model / f"ntg-{mode}-{seed}", languages) for seed in seeds]
        there = None not in scores
        rows.append([NAMES[model], *(cells(scores, name, languages) if there else [""] * (len(languages) + 1))])
        references = scores[0] if there else references
    if baseline:
        rows.append(["the page's first words", *cells([{"languages": baseline}], name, languages)])
    if name == "wrong_language" and references:
        shares = [references["languages"][code]["references_wrong_language"]["score"] for code in languages]
        known = None not in shares
        means = [statistics.mean(shares)] if known else []
        rows.append(["references", *(f"{share:.1f}" for share in shares + means)] if known else ["references"])
    return table([SCORES[name], *languages, "average"], rows)


def denoising(folder, models, languages):
    """BLEU of what each pre-trained model made of its noise, and of the corrupted text as it is."""
    rows = []
    for model in models:
        found = complete(folder / model / "denoise", languages)
        if found:
            rows += [
                [f"{NAMES[model]}{what}", *cells([scores], "bleu", languages)]
                for what, scores in (("", found), (", its input copied", found["copy"]))
            ]
    return table(["BLEU", *languages, "average"], rows)


def outputs(folder, models, mode, language, seed, files):
    """Lines of the report: of test examples at equal distances their source, reference and all models' titles."""
    written = {}
    for model in models:
        path = folder / model / f"ntg-{mode}-{seed}/outputs" / language / "generate-test.txt"
        if path.is_file():
            written[NAMES[model]] = detokenized(path)
    sources, references = (read_lines(files / f"test.{language}.{side}") for side in ("src", "tgt"))
    lines = []
    for number in range(SHOWN if written else 0):
        place = number * len(sources) // SHOWN
        source = sources[place] if len(sources[place]) <= LONGEST else f"{sources[place][:LONGEST]}…"
        shown = {"source": source, "reference": references[place]} | {name: of[place] for name, of in written.items()}
        lines += ["", f"{place + 1}."] + [f"   - {name}: {text}" for name, text in shown.items()]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=existing)
    for name in ("models", "langs", "seeds"):
        parser.add_argument(f"--{name}", type=lambda names: names.split(","), required=True)
    parser.add_argument("--titles", type=existing, help="folder of the task's files, for first words and examples")
    options = parser.parse_args()
    folder, models, languages, seeds = options.output, options.models, options.langs, options.seeds
    interval = "95 % bootstrap interval over the test examples"
    if len(seeds) > 1:
        interval = f"{over_what([folder], seeds)} (t, logit scale)"
    parts, baseline = [], first_words(options.titles, languages) if options.titles else None
    for (mode, trained), name in itertools.product(MODES.items(), SCORES):
        parts.append([f"Titles; trained on {trained.format(languages[0])}; {interval}."])
        parts.append(titles(folder, models, mode, name, languages, seeds, baseline))
    parts.append(["Denoising of text that was not trained on, nothing fine-tuned; ± half the 95 % bootstrap interval."])
    parts.append(denoising(folder, models, languages))
    if found := tokens_read(folder, models):
        parts.append(["What the encoder read in pre-training, padding left out: of xDAE the text with its noise."])
        parts.append(found)
    for mode, language in itertools.product(MODES, languages if options.titles else []):
        lines = outputs(folder, models, mode, language, seeds[0], options.titles)
        if lines:
            trained = MODES[mode].format(languages[0])
            parts.append([f"Titles in {language}, trained on {trained}, seed {seeds[0]}; not chosen.", *lines])
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    if folder.is_dir():
        (folder / "report.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    error_reporting.install()
    main()
