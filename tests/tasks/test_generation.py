"""fairseq-generate and fairseq-interactive with xl_translation."""

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_xl.commands import model_average as average_command
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models import generator
from fairseq_xl.models.encoder_decoder import Decoder, SourceEncoder
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, load, run_interactive, run_train, translation
from tests.tasks.generating import COMMON, generate, hypotheses
from tests.tasks.tiny_text import EMPTY, LONG, TEST_LINES, WORDS


@pytest.fixture(scope="module")
def both_ways(data_bin, tmp_path_factory):
    """A checkpoint that translates en-de and de-en, trained long enough for its outputs to differ from each other."""
    folder = tmp_path_factory.mktemp("both-ways")
    more = cli(lang_pairs="en-de,de-en", max_epoch=30, max_tokens=512, lr=0.01, no_epoch_checkpoints=True)
    run_train(translation(data_bin, folder, *more, "--disable-validation"))
    return folder / "checkpoint_last.pt"


def assert_equal_hypotheses(one, other):
    for left, right in zip(hypotheses(one), hypotheses(other), strict=True):
        assert (left[0], left[3]) == (right[0], right[3])
        assert left[1] == pytest.approx(right[1], abs=1e-5)
        assert left[2] == pytest.approx(right[2], abs=1.5e-4)  # printed with four digits


@pytest.mark.parametrize("beam", [1, 4])
def test_cached_beam_search_equals_uncached(data_bin, both_ways, monkeypatch, beam):
    cached = generate(data_bin, both_ways, "--beam", beam, "--nbest", beam)
    original, steps = Decoder.forward, []

    def uncached(self, prev_output_tokens, encoder_out=None, incremental_state=None):
        steps.append(prev_output_tokens.size(1))
        logits, extra = original(self, prev_output_tokens, encoder_out)
        return logits[:, -1:], extra

    monkeypatch.setattr(Decoder, "forward", uncached)
    monkeypatch.setattr(generator, "XLSequenceGenerator", SequenceGenerator)
    assert_equal_hypotheses(cached, generate(data_bin, both_ways, "--beam", beam, "--nbest", beam))
    assert max(steps) > 3
    assert len({tokens for *_, tokens in hypotheses(cached)}) > 3


@pytest.mark.parametrize("beam", [1, 4])
def test_batch_of_one_equals_batch_of_many(data_bin, both_ways, beam):
    many = generate(data_bin, both_ways, "--beam", beam, "--batch-size", 8)
    assert_equal_hypotheses(many, generate(data_bin, both_ways, "--beam", beam, "--batch-size", 1))
    assert_equal_hypotheses(many, generate(data_bin, both_ways, "--beam", beam, "--max-tokens", 90))


@pytest.fixture(scope="module")
def other_model(data_bin, tmp_path_factory):
    """A checkpoint of the same form with other weights."""
    folder = tmp_path_factory.mktemp("other")
    more = cli(lang_pairs="en-de,de-en", max_update=20, lr=0.01, seed=7, disable_validation=True)
    run_train(translation(data_bin, folder, *more))
    return folder / "checkpoint_last.pt"


def test_an_ensemble_averages_probabilities(data_bin, both_ways, other_model):
    """Of each token of the reference, which is forced as a prefix; the translations are those of neither model."""
    paths = (both_ways, other_model, f"{both_ways}:{other_model}")
    forced = [hypotheses(generate(data_bin, path, "--beam", 1, "--prefix-size", 99)) for path in paths]
    for one, other, both in zip(*forced, strict=True):
        assert one[3] == other[3] == both[3]
        means = np.mean([np.exp2(one[2]), np.exp2(other[2])], axis=0)
        assert np.exp2(both[2]) == pytest.approx(means, abs=2e-4)
    free = [[tokens for *_, tokens in hypotheses(generate(data_bin, path))] for path in paths]
    assert free[2] != free[0] and free[2] != free[1]


def test_every_line_gets_one_hypothesis(data_bin, both_ways):
    """13 lines, no multiple of 8; the empty one stays empty, the over-long one is truncated and reported."""
    output = generate(data_bin, both_ways)
    lines = output.lines("D")
    assert sorted(lines) == list(range(TEST_LINES)) and all(len(texts) == 1 for texts in lines.values())
    empty = [number for number, texts in lines.items() if not texts[0].partition("\t")[2].strip()]
    assert empty == [EMPTY]
    assert output.lines("H")[EMPTY] == output.lines("D")[EMPTY]
    warnings = [record.getMessage() for record in output.records if record.levelname == "WARNING"]
    reported = [warning for warning in warnings if "are truncated" in warning]
    assert (
        len(reported) == 1 and f"[{LONG + 1}]" in reported[0] and f"({MAX_POSITIONS}, {MAX_POSITIONS})" in reported[0]
    )
    assert len(output.lines("S")[LONG][0].split()) in range(MAX_POSITIONS - 3, MAX_POSITIONS + 1)


def test_output_holds_no_special_symbol(data_bin, tmp_path, both_ways):
    """The output bias of the model favors language symbols and <mask>."""
    state = torch.load(both_ways, weights_only=True)
    bias = state["model"]["decoder.token_embeddings.output_bias"]
    bias[-4:] += 20.0  # <mask> and the three languages
    torch.save(state, tmp_path / "biased.pt")
    assert not torch.equal(bias, load(both_ways)["decoder.token_embeddings.output_bias"])
    for checkpoint in (both_ways, tmp_path / "biased.pt"):
        output = generate(data_bin, checkpoint, "--beam", 2, "--nbest", 2)
        for kind in ("H", "D"):
            text = "\n".join(line for lines in output.lines(kind).values() for line in lines)
            assert len(text.splitlines()) == 2 * TEST_LINES
            for symbol in ("[en]", "[de]", "[fr]", "<mask>", "<s>", "</s>", "<pad>"):
                assert symbol not in text


def test_both_directions_read_the_same_bitext(data_bin, both_ways):
    forth, back = generate(data_bin, both_ways), generate(data_bin, both_ways, pair=("de", "en"))
    for number in range(TEST_LINES):
        assert forth.lines("S")[number][0].replace("<s> ", "") == back.lines("T")[number][0] or number == LONG
        assert back.lines("S")[number][0].replace("<s> ", "") == forth.lines("T")[number][0] or number == LONG


def test_generation_writes_the_target_language(data_bin, both_ways):
    """One model, two directions: each writes words of its target language."""
    for pair in (("en", "de"), ("de", "en")):
        hypotheses = generate(data_bin, both_ways, pair=pair).lines("D").values()
        written = "".join(lines[0].partition("\t")[2].replace(" ", "") for lines in hypotheses)
        found = {code: sum(written.count(word) for word in WORDS[code] if len(word) > 3) for code in pair}
        assert found[pair[1]] > 5 * found[pair[0]], (pair, found)


def test_batches_name_their_languages(data_bin, tmp_path, monkeypatch):
    """The decoder starts from the target's symbol, the encoder adds the source's embedding, in training and search."""
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    pad, directions = dictionary.pad(), set()
    line = translation(data_bin, tmp_path, "--lang-pairs", "en-de,de-en", "--max-epoch", 1, "--disable-validation")
    for sample in (sample for samples in run_train(line).samples.values() for sample in samples):
        batch, target = sample["batch"], sample["batch"]["target"]
        given, followed = batch["prev_output_tokens"], target[:, 1:] != pad
        assert torch.equal(given[:, 1:][followed], target[:, :-1][followed])
        for start, source, tokens in zip(given[:, 0], batch["languages"][:, 0], batch["tokens"], strict=True):
            words = dictionary.string(tokens[tokens != pad], "sentencepiece").removeprefix("<s>").split()
            assert words and set(words) <= set(WORDS[dictionary.languages[source]])
            directions.add((dictionary.languages[source], dictionary[start]))
    assert directions == {("en", "[de]"), ("de", "[en]")}

    seen = []
    encode, step = SourceEncoder.forward, BeamSearch.step

    def seen_encode(self, src_tokens, src_lengths=None, src_languages=None):
        seen.append(set(src_languages.tolist()))
        return encode(self, src_tokens, src_lengths, src_languages)

    def seen_step(self, number, log_probabilities, scores, prev_output_tokens, *arguments):
        seen.append(set(prev_output_tokens[:, 0].tolist()))
        return step(self, number, log_probabilities, scores, prev_output_tokens, *arguments)

    monkeypatch.setattr(SourceEncoder, "forward", seen_encode)
    monkeypatch.setattr(BeamSearch, "step", seen_step)
    for source, target in (("en", "de"), ("de", "en")):
        seen.clear()
        generate(data_bin, tmp_path / "checkpoint_last.pt", pair=(source, target))
        expected = ({dictionary.languages.index(source)}, {dictionary.index(f"[{target}]")})
        assert set(map(frozenset, seen)) == set(map(frozenset, expected))


def test_direction_of_a_checkpoint_with_pairs(data_bin, both_ways):
    """Without -s and -t the first of --lang-pairs is translated."""
    named = generate(data_bin, both_ways, pair=("de", "en"))
    first = generate(data_bin, both_ways, "--lang-pairs", "de-en", pair=None)
    assert hypotheses(named) == hypotheses(first)


# fairseq-interactive


def interactive(data, checkpoint, lines, *more):
    return run_interactive([data, "--path", checkpoint, *COMMON, "-s", "en", "-t", "de", *more], lines)


def pieces(data_bin, lines):
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(data_bin / "sentencepiece.model"))
    return [" ".join(model.encode(line, out_type=str)) for line in lines]


@pytest.mark.parametrize(
    "options", [[], ["--buffer-size", 8, "--batch-size", 8], ["--buffer-size", 2, "--max-tokens", 60]]
)
def test_interactive_translates_line_by_line(data_bin, corpus, both_ways, options):
    """Three lines in, three out, in order; an empty one stays empty; the same as fairseq-generate's."""
    lines = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()
    chosen = [3, EMPTY, 0]
    output = interactive(data_bin, both_ways, pieces(data_bin, [lines[number] for number in chosen]), *options)
    assert list(output.lines("D")) == [0, 1, 2]
    generated = generate(data_bin, both_ways).lines("H")
    for place, number in enumerate(chosen):
        (found,), (expected,) = output.lines("H")[place], generated[number]
        assert found.partition("\t")[2] == expected.partition("\t")[2]
        assert float(found.partition("\t")[0]) == pytest.approx(float(expected.partition("\t")[0]), abs=1e-5)
    assert [not lines[0].partition("\t")[2] for lines in output.lines("D").values()] == [False, True, False]


def test_interactive_has_ensembles_averages_and_target_pieces(data_bin, corpus, both_ways, other_model, tmp_path):
    """As fairseq-generate."""
    lines = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()
    chosen, average = [3, 0, 7], str(tmp_path / "average.pt")
    average_command.main(["--inputs", str(both_ways), str(other_model), "--output", average])
    found = []
    for path, more in ((f"{both_ways}:{other_model}", []), (average, []), (both_ways, ["--target-pieces-only"])):
        output = interactive(data_bin, path, pieces(data_bin, [lines[number] for number in chosen]), *more)
        expected = generate(data_bin, path, *more).lines("H")
        found.append([text.partition("\t")[2] for (text,) in output.lines("H").values()])
        assert found[-1] == [expected[number][0].partition("\t")[2] for number in chosen]
    assert found[0] != found[1]


def test_interactive_takes_raw_text_with_sentencepiece(data_bin, corpus, both_ways):
    raw = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()[:3]
    model = data_bin / "sentencepiece.model"
    plain = interactive(data_bin, both_ways, raw, "--bpe", "sentencepiece", "--sentencepiece-model", model)
    encoded = interactive(data_bin, both_ways, pieces(data_bin, raw))
    assert [lines[0] for lines in plain.lines("H").values()] == [lines[0] for lines in encoded.lines("H").values()]
    default = interactive(data_bin, both_ways, raw)  # the folder's model
    assert (default.lines("S"), default.lines("D")) == (plain.lines("S"), plain.lines("D"))
    assert all("▁" not in lines[0] for lines in plain.lines("D").values())
    # pieces that --remove-bpe has joined are not joined again: blanks stay
    both = interactive(
        data_bin, both_ways, raw, *cli(bpe="sentencepiece", sentencepiece_model=model, remove_bpe="sentencepiece")
    )
    assert both.lines("D") == plain.lines("D")
    assert any(" " in lines[0].partition("\t")[2] for lines in both.lines("D").values())
    with pytest.raises(UserError, match="--post-process letter does not fit .*: give sentencepiece"):
        interactive(data_bin, both_ways, raw, "--post-process", "letter")


def test_interactive_truncates_a_line_that_is_too_long(data_bin, both_ways):
    lines = pieces(data_bin, [" ".join([WORDS["en"][1]] * 60), "the house"])
    output = interactive(data_bin, both_ways, lines)
    assert list(output.lines("D")) == [0, 1]
    assert "are truncated" in output.log


def test_interactive_warns_once_of_unknown_words(data_bin, corpus, both_ways):
    """Inputs: raw text, also with a mark that is no piece; pieces, one of them unknown; text without pieces."""
    encoded = pieces(data_bin, ["the house garden Ω"])
    for lines, more, expected in (
        (["the house", "garden ## walks"], [], []),
        (encoded, [], []),
        (["☃☃", "☃☃"], ["--buffer-size", 1], ["1 of 2 tokens of the input are <unk>"]),
    ):
        output = interactive(data_bin, both_ways, lines, *more)
        found = [record.getMessage() for record in output.records if "<unk>" in record.getMessage()]
        assert found == expected


def test_alignments_are_the_last_layers_attention(data_bin, both_ways):
    """Each target piece's source piece with the largest mean attention over the heads, by teacher forcing."""
    output = generate(data_bin, both_ways, "--print-alignment", "--beam", 2)
    assert_equal_hypotheses(output, generate(data_bin, both_ways, "--beam", 2))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(both_ways)], {"data": str(data_bin)})
    dictionary, layer = task.dictionary, model.eval().decoder.layers[-1].cross_attention
    aligned = 0
    for number, (line,) in output.lines("A").items():
        (source,), (text,) = (
            output.lines("S")[number],
            [hypothesis[3] for hypothesis in hypotheses(output)[number:][:1]],
        )
        if not source or len(source.split()) > MAX_POSITIONS - 2:
            continue
        ids = [[dictionary.index(piece) for piece in side.split()] for side in (source, text)]
        tokens = torch.tensor([[0, *ids[0], 2]])
        started = torch.tensor([[dictionary.language_symbol("de"), *ids[1]]])
        encoder_out = model.encoder(tokens, None, torch.tensor([dictionary.language_id("en")]))
        query, key = [], []
        hooks = [
            layer.query.register_forward_hook(lambda *found: query.append(found[2])),
            layer.key_value.register_forward_hook(lambda *found: key.append(found[2])),
        ]
        model.decoder(started, encoder_out)
        for hook in hooks:
            hook.remove()
        keys, _ = key[0].chunk(2, dim=-1)
        heads = [side[0].unflatten(1, (layer.heads, -1)).transpose(0, 1) for side in (query[0], keys)]
        weights = (heads[0] @ heads[1].transpose(1, 2) / heads[0].size(2) ** 0.5).softmax(2).mean(0)
        best = weights[: len(ids[1]), 1:-1].argmax(1).tolist()  # without <s> and </s>
        assert line.split() == [f"{place}-{target}" for target, place in enumerate(best)]
        aligned += len(best)
    assert aligned > 40


def test_soft_alignments(data_bin, both_ways):
    output = generate(data_bin, both_ways, "--print-alignment", "soft", "--batch-size", 1)
    assert (
        len(output.lines("A")) == TEST_LINES and sum(len(line.split()) for (line,) in output.lines("A").values()) > 40
    )
    for number, (line,) in output.lines("A").items():
        rows = [[float(weight) for weight in row.split(",")] for row in line.split()]
        sources = len(output.lines("S")[number][0].split())
        assert all(
            len(row) == sources + 1 and 0 <= sum(row) <= 1 + 1e-4 for row in rows if sources <= MAX_POSITIONS - 2
        )


def test_constraints_are_in_the_output(data_bin, both_ways):
    """fairseq-interactive --constraints: pieces behind a tab must be generated; each line has its own."""
    wanted = pieces(data_bin, ["hinter", "Wasser"])
    lines = pieces(data_bin, ["the house", "a small garden", "the river"])
    given = [f"{lines[0]}\t{wanted[0]}", lines[1], f"{lines[2]}\t{wanted[0]}\t{wanted[1]}"]
    constrained = interactive(data_bin, both_ways, given, *cli(constraints=True, beam=8, buffer_size=3, batch_size=3))
    free = interactive(data_bin, both_ways, lines, *cli(beam=8, buffer_size=3, batch_size=3))
    texts = [[output.lines("H")[n][0].partition("\t")[2] for n in range(3)] for output in (constrained, free)]
    assert wanted[0] in texts[0][0] and wanted[0] in texts[0][2] and wanted[1] in texts[0][2]
    assert texts[0][1] == texts[1][1] and wanted[0] not in texts[1][0]


def test_constraints_that_no_hypothesis_has_room_for(data_bin, both_ways):
    """12 pieces fill a hypothesis, 13 do not fit."""
    more = cli(constraints=True, beam=2, max_len_a=0)  # and --max-len-b 12
    source, wanted = pieces(data_bin, ["the house", " ".join(["Haus"] * 12)])
    assert interactive(data_bin, both_ways, [f"{source}\t{wanted}"], *more).lines("H")[0]
    with pytest.raises(UserError, match="have 13 pieces, and a hypothesis has at most 12: raise --max-len-b"):
        interactive(data_bin, both_ways, [f"{source}\t{wanted} {wanted.split()[0]}"], *more)


def test_only_pieces_of_the_target_language(data_bin, both_ways):
    """At a high temperature all pieces are sampled, with the option those of the German training text alone."""
    allowed = set()
    text = open_text(data_bin / "de/train", "de")
    for line in range(len(text)):
        allowed |= set(text[line].tolist())
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    output = generate(data_bin, both_ways, "--target-pieces-only", "--beam", 1, "--sampling", "--temperature", 50)
    free = generate(data_bin, both_ways, "--beam", 1, "--sampling", "--temperature", 50)
    used = [
        {dictionary.index(piece) for *_, line in hypotheses(each) for piece in line.split()} for each in (output, free)
    ]
    assert used[0] <= allowed and not used[1] <= allowed
    with pytest.raises(UserError, match="--constraints: only fairseq-interactive reads constraints"):
        generate(data_bin, both_ways, "--constraints")
    with pytest.raises(UserError, match="--target-pieces-only does not work with --constraints"):
        interactive(data_bin, both_ways, ["das\tHaus"], "--target-pieces-only", "--constraints")


# Options: each has its effect or is refused


def test_no_piece_twice(data_bin, both_ways):
    free, once = (
        hypotheses(generate(data_bin, both_ways, "--min-len", 10, *more))
        for more in ([], ["--no-repeat-ngram-size", 1])
    )
    repeated = [[len(set(tokens.split())) < len(tokens.split()) for *_, tokens in found] for found in (free, once)]
    assert sum(repeated[0]) > 6 and not any(repeated[1])


def test_shards_are_every_second_batch(data_bin, both_ways):
    whole = generate(data_bin, both_ways, "--batch-size", 3).lines("H")
    shards = [generate(data_bin, both_ways, *cli(batch_size=3, num_shards=2, shard_id=n)).lines("H") for n in (0, 1)]
    assert (
        shards[0] | shards[1] == whole and not shards[0].keys() & shards[1].keys() and len(shards[0]) > len(shards[1])
    )
    with pytest.raises(UserError, match="--shard-id 6: the text has 5 batches only"):
        generate(data_bin, both_ways, *cli(batch_size=3, num_shards=7, shard_id=6))
    for more, said in ((cli(shard_id=2, num_shards=2), "--shard-id 2"), (cli(shard_id=1), "--shard-id 1")):
        with pytest.raises(UserError, match=said):
            generate(data_bin, both_ways, *more)
    with pytest.raises(UserError, match="--num-shards and --shard-id have no effect"):
        interactive(data_bin, both_ways, ["x"], "--num-shards", 2)


EXCLUDE = ["--sampling", "--beam", 2, "--nbest", 2]


@pytest.mark.parametrize(
    "options, said",
    [
        (["--sacrebleu"], "--sacrebleu.*--scoring sacrebleu"),
        (["--replace-unk"], "--replace-unk"),
        (["--skip-invalid-size-inputs-valid-test"], "--skip-invalid-size-inputs-valid-test.*truncated"),
        (["--required-batch-size-multiple", 3], "--required-batch-size-multiple 3"),
        (["--bf16"], "--bf16.*--fp16"),
        (["--distributed-world-size", 2], "--distributed-world-size 2.*--num-shards"),
        (["--nbest", 3, "--beam", 2], "--nbest 3: --beam 2"),
        (["--beam", 99999999], "--beam 99999999: a number below 10000"),
        (["--temperature", 0], "--temperature 0"),
        (["--sampling-topk", 3], "--sampling-topk 3: --sampling is needed"),
        (["--sampling-topp", 0.5], "--sampling-topp 0.5: --sampling is needed"),
        ([*EXCLUDE, "--sampling-topk", 99999], "--sampling-topk 99999"),
        ([*EXCLUDE, "--sampling-topp", 1.5], "--sampling-topp 1.5"),
        (
            [*EXCLUDE, "--sampling-topp", 0.5, "--sampling-topk", 3],
            "--sampling-topk has no effect with --sampling-topp",
        ),
        ([*EXCLUDE, "--diverse-beam-groups", 2], "--sampling and --diverse-beam-groups exclude each other"),
        (["--constraints", "--match-source-len"], "--match-source-len and --constraints exclude"),
        (["--diverse-beam-groups", 3], "--diverse-beam-groups 3.*--beam 5"),
        (["--diverse-beam-strength", 0.1], "--diverse-beam-groups is needed"),
        (["--match-source-len"], "--max-len-b have no effect with --match-source-len"),
        (["--score-reference", "--lenpen", 2], "--lenpen has no effect with --score-reference"),
    ],
)
def test_options_without_effect_are_refused(data_bin, both_ways, options, said):
    with pytest.raises(UserError, match=said):
        generate(data_bin, both_ways, *options)


@pytest.mark.parametrize(
    "options, said",
    [
        (["--prefix-size", 1], "--prefix-size"),
        (["--results-path", "FOLDER"], "--results-path"),
        (["--print-alignment", "soft"], "--print-alignment soft"),
        (["--batch-size", 2], "--batch-size 2 is larger than --buffer-size"),
        (["--gen-subset", "valid"], "--gen-subset"),
        (["--scoring", "chrf"], "--scoring chrf"),
    ],
)
def test_options_without_effect_in_interactive(data_bin, both_ways, tmp_path, options, said):
    options = [tmp_path if option == "FOLDER" else option for option in options]
    with pytest.raises(UserError, match=said):
        interactive(data_bin, both_ways, ["x"], *options)
    assert not any(tmp_path.iterdir())
