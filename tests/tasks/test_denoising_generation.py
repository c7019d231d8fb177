"""A corrupted test set through fairseq-generate: --denoise."""

import io
import json
from contextlib import redirect_stdout

import pytest

from fairseq_xl.commands import score_generation
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import generation_scores as scores
from fairseq_xl.evaluation.bleu import read_generated
from tests.command_line import cli
from tests.commands import denoising, evaluated, generation, run_generate, run_train
from tests.tasks.tiny_text import EMPTY, LONG, TEST_LINES
from tests.tasks.titles import write_titles

ARCHITECTURES = {"xdae": [], "xfnp": ["--arch", "xl_xfnp_tiny"]}


@pytest.fixture(scope="module")
def pretrained(data_bin, tmp_path_factory):
    """{"xdae", "xfnp"}: checkpoints of 40 updates."""
    folder = tmp_path_factory.mktemp("pretrained")
    for name, more in ARCHITECTURES.items():
        updates = cli(max_update=40, updates_per_epoch=40, lr=0.01, disable_validation=True)
        run_train(denoising(data_bin, folder / name, *more, *updates, objectives=name))
    return {name: folder / name / "checkpoint_last.pt" for name in ARCHITECTURES}


@pytest.fixture(scope="module")
def texts(corpus, tmp_path_factory):
    """Folder of test.XX: a test set with an empty line and one of 60 words."""
    folder = tmp_path_factory.mktemp("texts")
    for code in ("en", "de"):
        (folder / f"test.{code}").write_bytes((corpus / f"test.en-de.{code}").read_bytes())
    return folder


def denoise(data, texts, checkpoint, objective, language, *more, length=None):
    """`length`: maximum length of a line, in tokens; 32, as in pre-training, by default."""
    more = [*more, *(["--objective-options", f"{objective}.length={length}"] if length else [])]
    files = cli(denoise=objective, task_files=texts, eval_langs=language)
    search = cli(beam=2, max_len_a=1.5, max_len_b=5, remove_bpe="sentencepiece")
    return run_generate(evaluated(data, "generation", checkpoint, *files, *search, *more))


@pytest.mark.parametrize("objective", ARCHITECTURES)
def test_hypothesis_reference_and_copy_line_by_line(data_bin, texts, pretrained, tmp_path, objective):
    more, longest = ["--corrupted-to", tmp_path / "text", "--batch-size", 4], {"xdae": 30, "xfnp": 31}[objective]
    for code in ("en", "de"):
        output = denoise(
            data_bin, texts, pretrained[objective], objective, code, *more, "--results-path", tmp_path / "out" / code
        )
        assert f"test.{code}: 1 of {TEST_LINES - 1} lines have more than {longest} tokens" in output.log
        clean = (texts / f"test.{code}").read_text(encoding="utf-8").splitlines()
        kept = [line for number, line in enumerate(clean) if number not in (EMPTY, LONG)]
        assert (tmp_path / f"text/test.{code}.tgt").read_text(encoding="utf-8").splitlines() == kept
        copies = (tmp_path / f"text/test.{code}.src").read_text(encoding="utf-8").splitlines()
        assert len(copies) == len(kept) and sum(one != other for one, other in zip(copies, kept)) > 3
        assert not any("<" in copy for copy in copies)
    with redirect_stdout(io.StringIO()) as printed:
        score_generation.main(
            [str(tmp_path / "out"), *cli(references=str(tmp_path / "text"), langs="en,de", copy=True, bootstrap="0")]
        )
    result = json.loads(printed.getvalue())
    assert result["languages"]["de"]["n"] == TEST_LINES - 2
    assert result["copy"]["languages"]["de"]["bleu"] == scores.bleu(copies, kept)
    hypotheses = read_generated(tmp_path / "out/de/generate-test.txt")[0]
    assert result["languages"]["de"]["bleu"] == scores.bleu(hypotheses, kept)
    if objective == "xfnp":  # beam search writes the spans only; what was not masked stays around them
        words = [(set(copy.split()), set(line.split())) for copy, line in zip(copies, hypotheses, strict=True)]
        assert sum(len(one & other) for one, other in words) > 0.7 * sum(len(one) for one, _ in words)


def test_the_noise_is_the_same_again_and_another_with_other_options(data_bin, texts, pretrained, tmp_path):
    written = []
    for name, more in (
        ("one", []),
        ("two", ["--batch-size", 3]),
        ("three", ["--objective-options", "xdae.noise=drop xdae.drop_prob=0.5"]),
    ):
        denoise(data_bin, texts, pretrained["xdae"], "xdae", "de", "--corrupted-to", tmp_path / name, *more)
        written.append((tmp_path / name / "test.de.src").read_text(encoding="utf-8"))
    assert written[0] == written[1] != written[2]


def test_mistakes_are_one_sentence(data_bin, texts, pretrained, tmp_path):
    def refused(
        sentence, objective="xdae", language="de", checkpoint=pretrained["xdae"], files=texts, more=(), **given
    ):
        with pytest.raises(UserError) as error:
            denoise(data_bin, files, checkpoint, objective, language, *more, **given)
        assert sentence in str(error.value) and "\n" not in str(error.value)

    refused("--denoise mlm: choose one of", objective="mlm")
    refused("was trained with xdae, not with xfnp, which --denoise names", objective="xfnp")
    refused("test.fr: no such file of raw text", language="fr")
    refused("fairseq-generate takes one language at a time", language="en,de")
    refused("test.de: no line of at most 1 tokens (xdae.length)", length=3)
    (tmp_path / "test.de").write_bytes(b"Haus\n\xff\n")
    refused("test.de, line 2: not UTF-8", files=tmp_path)
    (tmp_path / "file").write_text("")
    refused(f"--corrupted-to {tmp_path / 'file'}: File exists", more=["--corrupted-to", tmp_path / "file"])
    files = write_titles(tmp_path / "titles")
    run_train(generation(data_bin, files, tmp_path / "run", "--max-update", 1, "--disable-validation"))
    refused("was trained by xl_generation, not with xdae", checkpoint=tmp_path / "run/checkpoint_last.pt")
    with pytest.raises(UserError, match="--denoise is for fairseq-generate; the task xl_pretraining trains"):
        more = cli(denoise="xdae", objective_options="xdae.length=32", disable_validation=True)
        run_train(generation(data_bin, files, tmp_path / "other", *more))
