"""sacreBLEU with the tokenizer of a language, tokenized BLEU, chrF, and the paired bootstrap of two systems."""

import html
import logging
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest
from tqdm import tqdm

from fairseq_xl.errors import UserError
from fairseq_xl.io.lines import read_lines
from fairseq_xl.io.versions import version

logger = logging.getLogger(__name__)

#: sacreBLEU's tokenizer of a language; char replaces one whose package is not installed
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
TOKENIZERS |= dict.fromkeys(("bo", "dz", "km", "lo", "my", "th"), "char")  # no spaces between words

#: tokenizers of the scores that WMT publishes; the others are 13a
WMT_TOKENIZERS = {"zh": "zh", "ja": "char"}

#: codes of ISO 639-1, with its former sh
LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
    et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki
    kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no
    nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta
    te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
""".split()
)

#: lines of fairseq-generate that are read: source, target, and a hypothesis with its score
GENERATED = re.compile(r"(?:([ST])-(\d+)(?:\t(.*))?|D-(\d+)\t[^\t]*\t(.*))", re.DOTALL)


def read_generated(path: str | Path) -> tuple[list[str], dict[int, str]]:
    """Best hypotheses of a fairseq-generate output (``D-`` lines), in the order of the test lines, and its target text.

    Returns: the hypotheses, and {number of the test line, from 0 on: target text}, which is empty without ``T-`` lines.
    Raises `UserError` unless every test line has exactly one source, target and list of hypotheses: for an output that
    was cut, and for two outputs in one file.
    """
    best, targets, sources, previous = {}, {}, set(), None
    for i, line in enumerate(read_lines(path), start=1):
        if line[:2] not in ("S-", "T-", "D-"):
            continue
        match = GENERATED.fullmatch(line)
        if not match:
            expected = "D-NUMBER TAB score TAB text" if line[0] == "D" else f"{line[0]}-NUMBER TAB text"
            raise UserError(f"{path}, line {i}: expected {expected}, found {line[:40]!r}")
        index = int(match[2] or match[4])
        indices = {"S": sources, "T": targets, None: best}[match[1]]
        if index in indices and (match[1] or index != previous):  # several hypotheses of a line follow each other
            raise UserError(f"{path}, line {i}: {line[0]}-{index} occurs twice: expected the output of one run")
        if match[1] == "S":
            sources.add(index)
        elif match[1] == "T":
            targets[index] = match[3] or ""
        else:
            best.setdefault(index, match[5])
            previous = index
    if not best:
        raise UserError(f"{path} has no D- lines of fairseq-generate; --plain reads one hypothesis per line")
    count = 1 + max((*best, *sources, *targets))
    if len(best) < count:
        raise UserError(f"{path}: expected one D- line for each test line, found {len(best)} of {count}")
    return [best[index] for index in range(count)], targets


def read_pair(generated: str | Path, references: str | Path) -> tuple[list[str], list[str]]:
    """Best hypotheses of a fairseq-generate output, and the lines of the file of their references.

    Raises the errors of `read_generated`, and `UserError` for another number of references, or if less than half of
    them equal the target text in the output: those of another test set, split, language or order.
    """
    (hypotheses, targets), expected = read_generated(generated), read_lines(references)
    if len(hypotheses) != len(expected):
        raise UserError(f"{generated}: {len(hypotheses)} hypotheses but {len(expected)} references in {references}")
    indices = [index for index, text in targets.items() if "<unk>" not in text]
    equal = sum(fold_letters(targets[index]) == fold_letters(expected[index]) for index in indices)
    if 2 * equal < len(indices):
        raise UserError(
            f"{references}: only {equal} of {len(indices)} lines equal the target text (T-) in {generated}: expected "
            "the references of its test set; `fairseq-xl score bleu --plain` scores plain text against any references"
        )
    return hypotheses, expected


def fold_letters(text: str) -> str:
    """The letters and digits of a text without accents and case, as sub-words, Moses and XLM's text preserve them."""
    text = unicodedata.normalize("NFKD", html.unescape(re.sub(r"@@|[\s▁]", "", text)))
    return "".join(filter(str.isalnum, text.casefold()))


def primary_code(language: str) -> str:
    """The language of a code that may also name a region: `zh_CN` -> `zh`."""
    return re.split("[-_]", language)[0].lower()


def tokenizer_name(language: str) -> str:
    """sacreBLEU's tokenizer for a language, by its code (`zh_CN` as `zh`): 13a if spaces separate its words."""
    name = TOKENIZERS.get(primary_code(language), "13a")
    if name.endswith("mecab"):
        try:
            BLEU(tokenize=name)
        except RuntimeError:  # sacreBLEU's, for a package that is not installed
            return "char"
    return name


def bleu_metric(tokenize: str, lowercase: bool = False, smoothing: str = "exp") -> BLEU:
    """sacreBLEU's BLEU; raises `UserError` if the tokenizer lacks its package or a file that is downloaded."""
    try:
        return BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smoothing, force=True)
    except (ImportError, RuntimeError):
        raise UserError(f"sacreBLEU's tokenizer {tokenize} needs a package that is not installed") from None
    except OSError as error:
        raise UserError(f"sacreBLEU's tokenizer {tokenize} needs a file that cannot be downloaded: {error}") from None


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = 0,
    further: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """Corpus BLEU of n hypotheses: {"score", "signature"} and, with resamples, "interval": half the width at 95 %.

    `further` are other references of the same n lines.
    """
    return _score(bleu_metric(tokenize, lowercase), hypotheses, [references, *further], bootstrap)


def chrf(
    hypotheses: Sequence[str], references: Sequence[str], bootstrap: int = 0, further: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """chrF2 (Popović 2015) of n hypotheses against n references: takes and returns the same as `bleu`."""
    return _score(_CHRF(), hypotheses, [references, *further], bootstrap)


class _CHRF(CHRF):
    """sacreBLEU's chrF with Python floats as scores: its bootstrap fails on a mix of 0.0 and numpy's float32."""

    def _compute_score_from_stats(self, stats: list[int]) -> Any:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def _score(
    metric: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], bootstrap: int = 0
) -> dict[str, Any]:
    for lines in references:
        if len(hypotheses) != len(lines):
            raise UserError(f"{len(hypotheses)} hypotheses but {len(lines)} references")
    score = metric.corpus_score(hypotheses, references, n_bootstrap=bootstrap or 1)
    interval = {"interval": round(float(score._ci), 2)} if bootstrap else {}
    return {"score": round(float(score.score), 2)} | interval | {"signature": str(metric.get_signature())}


def paired(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    resamples: int = 1000,
    further: Sequence[Sequence[str]] = (),
) -> dict[str, Any]:
    """sacreBLEU's paired bootstrap over test lines (Koehn 2004) of n hypotheses against those of a `baseline`.

    Returns: {"against": the baseline's BLEU, "difference", "p": two-sided, "signature"}.
    """
    systems = [("against", baseline), ("generated", hypotheses)]
    signatures, scores = PairedTest(systems, {"BLEU": bleu_metric(tokenize)}, [references, *further], "bs", resamples)()
    results: Any = scores["BLEU"]
    against, generated = results
    difference = generated.score - against.score
    return {
        "against": round(against.score, 2),
        "difference": round(difference, 2),
        "p": round(generated.p_value, 4) if difference else 1.0,  # sacreBLEU gives equal systems p = 0.001
        "signature": str(signatures["BLEU"]),
    }


def tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, further: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """BLEU of Moses-tokenized text without smoothing, as multi-bleu.perl computes it; `UserError` without sacremoses.

    Returns: {"tokenized": case-insensitive (Luo et al. 2020), "tokenized_cased": with case (Lample & Conneau 2019)},
    each {"score", "signature", "tokenizer"}.
    """
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        raise UserError("tokenized BLEU needs the package sacremoses: pip install sacremoses") from None
    moses = MosesTokenizer(lang=language)
    hypotheses, *tokenized = (
        [moses.tokenize(line, return_str=True, escape=False) for line in lines]
        for lines in (hypotheses, references, *further)
    )
    tokenizer = {"tokenizer": f"sacremoses {version('sacremoses')} {language}"}
    return {
        name: _score(bleu_metric("none", lowercase, "none"), hypotheses, tokenized) | tokenizer
        for name, lowercase in (("tokenized", True), ("tokenized_cased", False))
    }


def wmt_scores(outputs: str | Path, references: str | Path) -> dict[str, dict[str, dict[str, float]]]:
    """BLEU and chrF, unrounded, of the systems of a folder, as in WMT's releases, by language pair and system.

    BLEU has `WMT_TOKENIZERS`: Chinese zh, Japanese characters, all other languages 13a.

    Args:
        outputs: a folder of SET.XX-YY.hyp.SYSTEM.YY, a translation on each line.
        references: a folder of SET.XX-YY.ref.NAME.YY.

    Returns: {pair: {system: {"bleu-NAME", "chrf-NAME": against each reference, "bleu-all", "chrf-all": against all}}}.
    Raises `UserError` for another number of lines, for a set without reference, for two sets of a pair, and if
    `outputs` has no such file.
    """
    files = {"hyp": outputs, "ref": references}
    named = {
        kind: [(match, path) for path in sorted(Path(folder).iterdir()) if (match := _wmt_name(kind, path.name))]
        for kind, folder in files.items()
    }
    if not named["hyp"]:
        raise UserError(f"{outputs}: no file SET.XX-YY.hyp.SYSTEM.YY, such as newstest2021.en-de.hyp.UEdin.de")
    sets = {match["pair"]: match["test"] for match, _ in named["hyp"]}
    if twice := [match["test"] for match, _ in named["hyp"] if match["test"] != sets[match["pair"]]]:
        raise UserError(f"{outputs} has two test sets of a pair, {twice[0]} and another one: one folder for each")
    expected: dict[str, dict[str, list[str]]] = {}
    for match, path in named["ref"]:
        expected.setdefault(match["test"], {})[match["name"]] = read_lines(path)
    read = {path for pairs in named.values() for _, path in pairs}
    for path in sorted(path for folder in files.values() for path in Path(folder).iterdir() if path not in read):
        logger.warning("%s is left out: its name is none of a system's output or a reference", path)
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for match, path in tqdm(named["hyp"], "systems", disable=None):
        if match["test"] not in expected:
            raise UserError(f"{references}: no reference {match['test']}.ref.NAME.{match['language']} of {path.name}")
        hypotheses, sides = read_lines(path), expected[match["test"]]
        if wrong := next((name for name, lines in sides.items() if len(lines) != len(hypotheses)), None):
            raise UserError(f"{path}: {len(hypotheses)} lines but {len(sides[wrong])} of reference {wrong}")
        metrics = {"bleu": bleu_metric(WMT_TOKENIZERS.get(match["language"], "13a")), "chrf": _CHRF()}
        scores.setdefault(match["pair"], {})[match["name"]] = {
            f"{metric}-{name}": float(metrics[metric].corpus_score(hypotheses, lines).score)
            for name, lines in [*((name, [lines]) for name, lines in sides.items()), ("all", [*sides.values()])]
            for metric in metrics
        }
    return scores


def _wmt_name(kind: str, name: str) -> re.Match[str] | None:
    return re.fullmatch(rf"(?P<test>\w+\.(?P<pair>\w+-(?P<language>\w+)))\.{kind}\.(?P<name>.+)\.(?P=language)", name)
