"""How objectives are found, named and configured; a user's mistake is one sentence."""

import pytest

from fairseq_xl.data.corpora.base import Corpus
from fairseq_xl.data.corpora.sentence_blocks import SentenceBlocks
from fairseq_xl.data.corpora.sentences import Sentences
from fairseq_xl.data.corpora.token_stream import TokenStream
from fairseq_xl.data.framing import Framing
from fairseq_xl.errors import UserError
from fairseq_xl.objectives import OBJECTIVES, Objective, build_objectives
from fairseq_xl.objectives.labelled import labelled_objectives


@pytest.fixture
def build(dictionary):
    return lambda names, options=None: build_objectives(names, options, dictionary, Framing.of("xl", dictionary))


@pytest.fixture
def refusal(build):
    """The error message."""

    def refusal(names, options=None):
        with pytest.raises(UserError) as refused:
            build(names, options)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    return refusal


def test_which_terms_predict_no_words(build):
    built = build(",".join(OBJECTIVES)).values()
    assert all(set(objective.language_modeling) <= set(objective.terms) for objective in built)
    others = {term for objective in built for term in set(objective.terms) - set(objective.language_modeling)}
    distances = {"nsp", "paraphrase", "paraphrase_similarity", "distillation"}
    assert others == {*distances, "generation", "translation", *labelled_objectives()}


def test_every_objective_says_what_it_is():
    for name, objective in OBJECTIVES.items():
        assert objective.name == name
        assert issubclass(objective.corpus_class, Corpus)
        assert objective.collate is not Objective.collate and objective.loss is not Objective.loss
        assert objective.__doc__


def test_options_are_merged_into_the_papers_values(build):
    built = build("mlm, tlm", "mlm.mask_prob=0.2 tlm.weight=0.5 tlm.batch_tokens=4000 mlm.length=64")
    mlm, tlm = built["mlm"].cfg, built["tlm"].cfg
    assert list(built) == ["mlm", "tlm"]
    assert (mlm.mask_prob, mlm.length, mlm.weight, mlm.batch_tokens) == (0.2, 64, "1.0", None)
    assert (tlm.mask_prob, tlm.length, tlm.weight, tlm.batch_tokens) == (0.15, 256, "0.5", 4000)
    assert (tlm.mask_token_prob, tlm.random_token_prob, tlm.frequency_exponent, tlm.alpha) == (0.8, 0.1, 0.5, 0.7)


@pytest.mark.parametrize("names", ["mlm,nonsense", "", ",", "mlm,mlm"])
def test_unknown_or_repeated_objectives(refusal, names):
    sentence = refusal(names)
    assert f"expected some of {', '.join(sorted(OBJECTIVES))}, or NAME=OBJECTIVE" in sentence
    assert ("unknown nonsense; " in sentence) == ("nonsense" in names)


def test_an_unknown_key(refusal):
    sentence = refusal("mlm", "mlm.maskprob=0.2")
    assert sentence == "--objective-options mlm.maskprob=0.2: mlm has no option maskprob; did you mean mask_prob?"


@pytest.mark.parametrize("value", ["much", "", "[1", "${nothing}", "[1,2]", "null"])
def test_ill_typed_values(refusal, value):
    expected = f"--objective-options mlm.mask_prob={value}: expected a number"
    assert refusal("mlm", f"mlm.length=64 mlm.mask_prob={value}") == expected


@pytest.mark.parametrize(
    "setting, expected",
    [("length=1.5", "an integer"), ("mixed=5.5", "true or false"), ("normalization=x", "one of squad, mlqa")],
)
def test_values_of_other_types(refusal, setting, expected):
    kind = "question_answering"
    assert refusal(kind, f"{kind}.{setting}") == f"--objective-options {kind}.{setting}: expected {expected}"


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "copying"])
def test_objectives_on_blocks_may_end_them_at_sentences(build, refusal, name):
    option = f"{name}.sample_break_mode=complete"
    if OBJECTIVES[name].corpus_class is TokenStream:
        whole, cut = build(name, option)[name], build(name, "")[name]
        single = build(name, f"{name}.sample_break_mode=eos")[name]
        assert [each.corpus_class for each in (whole, cut, single)] == [SentenceBlocks, TokenStream, Sentences]
        assert whole.input_length == cut.input_length == single.input_length
    else:
        assert f"{option}: {name} has no option sample_break_mode; " in refusal(name, option)


def test_an_unknown_break_mode(refusal):
    assert "sample_break_mode=complete_doc should be none or complete or eos" in refusal(
        "mlm", "mlm.sample_break_mode=complete_doc"
    )


def test_a_weight_may_change_linearly_between_updates(build):
    """As Lample & Conneau's --lambda_ae; before the first and after the last update it stays the same."""
    built = build("mlm,tlm,clm", "mlm.weight=0:1,100000:0.1,300000:0 tlm.weight=5:0,7:2 clm.weight=0")
    weights = [built["mlm"].weight(update) for update in (0, 50_000, 100_000, 200_000, 300_000, 10**6)]
    assert weights == pytest.approx([1, 0.55, 0.1, 0.05, 0, 0])
    assert [built["tlm"].weight(update) for update in (0, 5, 6, 7, 8)] == [0, 0, 1, 2, 2]
    assert [built[name].is_trained for name in ("mlm", "tlm", "clm")] == [True, True, False]
    assert [built[name].full_weight for name in ("mlm", "tlm", "clm")] == [1, 2, 0]
    assert [build("mlm", "mlm.weight=100:0.5")["mlm"].weight(update) for update in (0, 100, 200)] == [0.5] * 3


@pytest.mark.parametrize("value", ["-1", "much", "0:1,0:2", "5:1,4:2", "0:1,", "0:-1", "-3:1,5:0", "nan", "1e9:1"])
def test_malformed_weights(refusal, value):
    assert f"mlm.weight={value} should be 0 or more, or UPDATE:FACTOR" in refusal("mlm", f"mlm.weight={value}")


@pytest.mark.parametrize("name", ["mlm", "clm", "xdae", "xfnp"])
def test_inputs_may_be_short_at_first(build, refusal, name):
    options = f"{name}.length=64 {name}.warmup_length=16 {name}.warmup_length_updates=500"
    objective, short = build(name, options)[name], build(name, f"{name}.length=16")[name]
    assert objective.input_length_at(0) == objective.input_length_at(499) == short.input_length
    assert (
        objective.input_length_at(500) == objective.input_length == build(name, f"{name}.length=64")[name].input_length
    )
    sentence = refusal(name, f"{name}.length=64 {name}.warmup_length=65")
    assert f"{name}.warmup_length_updates=0 should be set with warmup_length" in refusal(
        name, f"{name}.length=64 {name}.warmup_length=16"
    )
    assert f"{name}.warmup_length=65 should be more than 3 tokens and at most length, 64" in sentence


def test_options_of_objectives_that_are_not_chosen_are_checked_and_not_used(build, refusal):
    assert list(build("clm", "mlm.mask_prob=0.2 clm.length=64")) == ["clm"]
    assert "mlm has no option maskprob" in refusal("clm", "mlm.maskprob=0.2")


@pytest.mark.parametrize(
    "setting",
    (
        "mask_prob=2 mask_prob=-1 mask_token_prob=-1 random_token_prob=0.3 length=1 alpha=-1 "
        "batch_tokens=0 weight=nan weight=-1.0 weight=inf alpha=inf alpha=100.0 frequency_exponent=nan "
        "frequency_exponent=-1.0 frequency_exponent=50.0 mask_prob=nan batch_sentences=2147483648"
    ).split(),
)
def test_values_out_of_range(refusal, setting):
    key, value = setting.split("=")
    assert refusal("mlm", f"mlm.{setting}").startswith(f"--objective-options: mlm.{key}={value}")


@pytest.mark.parametrize("option", ["mask_prob=0.2", "mlm.weight", "mlm", "=", "mlm.mask_prob 0.2"])
def test_malformed_options(refusal, option):
    example = "tlm.mask_prob=0.2" if option == "mask_prob=0.2" else "mlm.length=128"
    expected = f"--objective-options {option.split()[0]}: expected OBJECTIVE.OPTION=VALUE, such as {example}"
    assert refusal("tlm", option) == expected


@pytest.mark.parametrize(
    "owner, expected", [("mln", "did you mean mlm?"), ("nli", "did you mean xnli?"), ("a", "one of tlm, xnli")]
)
def test_options_of_no_objective(refusal, owner, expected):
    found = refusal("tlm,xnli=classification", f"{owner}.weight=1")
    assert found.startswith(f"--objective-options {owner}.weight=1: there is no objective {owner}; ")
    assert found.endswith(expected)
