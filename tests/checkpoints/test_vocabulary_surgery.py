"""Rows of weights, averages and optimizers for another dictionary, by hand, and their old rows."""

import pytest
import torch

from fairseq_xl.checkpoints import vocabulary_surgery as surgery
from fairseq_xl.checkpoints.identity import Checkpoint
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from tests.tiny_data import write_dictionary

TOKENS, BIAS = "encoder.token_embeddings.table.weight", "encoder.token_embeddings.output_bias"
LANGUAGES, NORM = "encoder.embeddings.languages.weight", "encoder.embeddings.norm.weight"
OLD = ["▁a", "▁b", "c", "▁"]  # ids 4 to 7, then <mask> 8, [de] 9, [en] 10


@pytest.fixture
def dictionaries(tmp_path):
    """Nine symbols, of which two are pieces and two languages; the new one has one piece and three languages."""
    old = write_dictionary(tmp_path / "old.txt", {"a": 2, "b": 1}, ["de", "en"])
    new = write_dictionary(tmp_path / "new.txt", {"ab": 1}, ["de", "en", "fr"])
    return XLDictionary.load(old), XLDictionary.load(new)


ROWS = surgery.Rows([[0], [1], [2], [3], [4, 5], [6], [7], [8], [7, 8]], [[0], [1], [0, 1]])
TABLE = torch.arange(18.0).view(9, 2)


def state(factor=1.0):
    return {
        BIAS: factor * torch.arange(9.0),
        TOKENS: factor * TABLE,
        LANGUAGES: factor * torch.tensor([[1.0, 2], [3, 6]]),
        NORM: factor * torch.ones(2),
    }


def checkpoint():
    moments = [
        {"step": 5, "exp_avg": value, "exp_avg_sq": square}
        for value, square in zip(state(0.5).values(), state(0.25).values())
    ]
    return {
        "cfg": {"model": {}, "task": {"data": "old", "seed": 1}},
        "model": state(),
        "extra_state": {"ema": state(2.0), "val_loss": 3.5},
        "task_state": {"fairseq_xl": {"dictionary": "x", "languages": ["de", "en"], "heads": 2}, "other": 1},
        "last_optimizer_state": {
            "state": dict(enumerate(moments)),
            "param_groups": [{"lr": 0.1, "params": [0, 1]}, {"lr": 0.2, "params": [2, 3]}],
            "fp32_params": list(state(3.0).values()),
            "loss_scale": 4.0,
        },
    }


def check(found, factor):
    """Rows 4 and 5 are (8, 9) and (10, 11); 7 and 8 are (14, 15) and (16, 17)."""
    tokens = [*([2 * row, 2 * row + 1] for row in range(4)), [9, 10], [12, 13], [14, 15], [16, 17], [15, 16]]
    assert (found[TOKENS] / factor).tolist() == tokens
    assert (found[BIAS] / factor).tolist() == [0, 1, 2, 3, 4.5, 6, 7, 8, 7.5]
    assert (found[LANGUAGES] / factor).tolist() == [[1, 2], [3, 6], [2, 4]]
    assert (found[NORM] / factor).tolist() == [1, 1]


def check_moments(found, factor):
    """Rows that stay keep theirs."""
    kept = [0, 1, 2, 3, None, 6, 7, 8, None]
    assert (found[TOKENS] / factor).tolist() == [[0, 0] if row is None else [2 * row, 2 * row + 1] for row in kept]
    assert (found[BIAS] / factor).tolist() == [row or 0 for row in kept]
    assert (found[LANGUAGES] / factor).tolist() == [[1, 2], [3, 6], [0, 0]] and (found[NORM] / factor).tolist() == [
        1,
        1,
    ]


def test_all_states_get_the_new_rows(dictionaries):
    before = checkpoint()
    found = surgery.change_vocabulary(Checkpoint("c.pt", before, {}, {}), *dictionaries, ROWS, "new", {"a": 1})
    check(found["model"], 1)
    check(found["extra_state"]["ema"], 2)
    optimizer = found["last_optimizer_state"]
    check(dict(zip(state(), optimizer["fp32_params"])), 3)
    for key, factor in (("exp_avg", 0.5), ("exp_avg_sq", 0.25)):
        check_moments(dict(zip(state(), (moments[key] for moments in optimizer["state"].values()))), factor)
    assert {moments["step"] for moments in optimizer["state"].values()} == {5} and optimizer["loss_scale"] == 4
    assert found["extra_state"]["val_loss"] == 3.5 and found["cfg"]["task"] == {"data": "new", "seed": 1}
    identity = {"dictionary": dictionaries[1].digest(), "languages": ["de", "en", "fr"], "heads": 2}
    assert found["task_state"] == {"fairseq_xl": identity | {"encoding": {"a": 1}}, "inputs": {}, "other": 1}
    again = checkpoint()
    assert torch.equal(before["model"][TOKENS], again["model"][TOKENS]) and before["cfg"] == again["cfg"]


def test_means_are_computed_in_32_bits():
    """In 16 bits a sum of ones stops at 256, and the mean would be 0.85."""
    table = torch.ones(301, 1, dtype=torch.bfloat16)
    table[0] = 2
    assert surgery.mean_rows(table, [list(range(301)), [0]]).tolist() == [[1.0], [2.0]]


def test_random_embeddings(dictionaries):
    """All copies of the table get the same numbers, with the standard deviation of the model's initial weights."""
    rows = surgery.Rows([[0], [1], [2], [3], *([[4, 5]] * 400)], ROWS.languages, random=range(4, 404), std=0.5)
    table = torch.ones(9, 50)
    found = rows.weights(TOKENS, table)
    assert torch.equal(found[:4], table[:4]) and found[4:].std().item() == pytest.approx(0.5, rel=0.02)
    assert abs(found[4:].mean().item()) < 0.02 and len(found.unique(dim=0)) == 401
    assert torch.equal(rows.weights(TOKENS, table.bfloat16()), found.bfloat16())
    assert rows.weights(BIAS, torch.arange(9.0))[4:].tolist() == [4.5] * 400
    assert not rows.moments(TOKENS, table)[4:].any()
    before = checkpoint()
    before["cfg"]["model"]["init_std"] = 0.0
    drawn = surgery.Rows(ROWS.symbols, ROWS.languages, random=[5])
    found = surgery.change_vocabulary(Checkpoint("c.pt", before, {}, {}), *dictionaries, drawn, "new", {})["model"]
    assert found[TOKENS][5].tolist() == [0, 0] and found[TOKENS][6].tolist() == [14, 15]


def test_one_row_is_copied_bit_for_bit():
    table = torch.tensor([[0.1, float("-inf")], [1e-45, -0.0]])
    found = surgery.mean_rows(table, [[1], [0], [1]])
    assert torch.equal(found, table[[1, 0, 1]]) and torch.equal(found.signbit(), table[[1, 0, 1]].signbit())


def test_an_optimizer_of_other_parameters_is_left_out(dictionaries, caplog):
    for change, message in (
        (lambda each: each["param_groups"].pop(), "it has 2 parameters, the run trains 4"),
        (lambda each: each["state"][1].update(exp_avg=torch.zeros(3, 2)), "exp_avg of .*table.weight has shape"),
        (lambda each: each["fp32_params"].reverse(), "its FP32 master weights have other shapes"),
    ):
        before = checkpoint()
        change(before["last_optimizer_state"])
        caplog.clear()
        found = surgery.change_vocabulary(Checkpoint("c.pt", before, {}, {}), *dictionaries, ROWS, "new", {})
        assert found["last_optimizer_state"] is None
        assert caplog.messages[0].startswith("c.pt: the optimizer's state is left out: ")
        with pytest.raises(surgery.OtherParameters, match=message):
            surgery.change_optimizer(before["last_optimizer_state"], state(), ROWS)


@pytest.mark.parametrize(
    "options, names",
    [
        ({}, [BIAS, TOKENS, LANGUAGES, NORM]),
        ({"train_only": "*norm*,encoder.token_*"}, [BIAS, TOKENS, NORM]),
        ({"train_only": "language-module"}, [BIAS, TOKENS, LANGUAGES]),
        ({"freeze": "language-module"}, [NORM]),
        ({"freeze": "*.languages.*"}, [BIAS, TOKENS, NORM]),
    ],
)
def test_trained_parameters(options, names):
    assert surgery.trained_names(state(), {"task": options, "model": {"language_positions": False}}) == names


def test_damaged_tables(dictionaries):
    for name, message in ((TOKENS, "has 8 rows, its dictionary 9 symbols"), (LANGUAGES, "1 rows, its dictionary 2")):
        before = checkpoint()
        before["model"][name] = before["model"][name][:-1]
        with pytest.raises(UserError, match=f"c.pt is damaged: {name} .*{message}"):
            surgery.change_vocabulary(Checkpoint("c.pt", before, {}, {}), *dictionaries, ROWS, "new", {})
    before = checkpoint() | {"model": {NORM: torch.ones(2)}}
    with pytest.raises(UserError, match="c.pt has no token embeddings"):
        surgery.change_vocabulary(Checkpoint("c.pt", before, {}, {}), *dictionaries, ROWS, "new", {})


def load(path, pieces, languages):
    return XLDictionary.load(write_dictionary(path, dict.fromkeys(pieces, 1), languages))


@pytest.fixture
def old(tmp_path):
    return load(tmp_path / "old.txt", OLD, ["de", "en"])


def segment(piece):
    """Characters, the first one with the mark of a word; those that the old dictionary lacks are unknown."""
    parts = [piece[:2], *piece[2:]] if piece[:2] in OLD else list(piece)
    return [part for part in parts if part in OLD]


def rows_of(tmp_path, old, pieces, languages, **more):
    return surgery.initial_rows(old, load(tmp_path / "new.txt", pieces, languages), segment, **more)


def test_rows(tmp_path, old, caplog):
    caplog.set_level("INFO")
    pieces = ["c", "▁acc", "▁ax", "▁x", "x", "▁b"]
    found = rows_of(tmp_path, old, pieces, ["fr", "en"])
    special = [[0], [1], [2], [3]]
    expected = [[6], [4, 6, 6], [4], [4, 5, 6, 7], [4, 5, 6, 7], [5]]
    assert found.symbols == [*special, *expected, [8], [9, 10], [10]] and found.languages == [[0, 1], [1]]
    assert found.random == [7, 8]  # ▁x and x
    assert caplog.messages == ["new pieces: 4 (2 with random embeddings); new languages: fr; removed symbols: 3"]


def test_rows_of_languages(tmp_path, old):
    """One may begin like another. [it] was text in one dictionary, and is a language now."""
    found = rows_of(tmp_path, old, OLD, ["de", "en", "fr"], like="en")
    assert found.symbols[-3:] == [[9], [10], [10]] and found.languages == [[0], [1], [1]]
    first = rows_of(tmp_path, load(tmp_path / "none.txt", OLD, []), OLD, ["de"])
    assert first.symbols[-1] == [4, 5, 6, 7]
    as_text = rows_of(tmp_path, load(tmp_path / "text.txt", [*OLD, "[it]"], ["de"]), OLD, ["de", "it"])
    assert as_text.symbols[-2:] == [[10], [10]]
    with pytest.raises(UserError, match="language 'it' has no symbol in the dictionary"):
        rows_of(tmp_path, old, OLD, ["de", "en", "fr"], like="it")
    with pytest.raises(UserError, match="has the symbols of the old one: there is nothing to add"):
        rows_of(tmp_path, old, OLD, ["de", "en"])
