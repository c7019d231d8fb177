"""fairseq-generate and fairseq-interactive with xl_translation."""

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.search import BeamSearch

from fairseq_xl.commands import model_average as average_command
from fairseq_xl.data.store.binarized_text import open_text
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.models.encoder_decoder import SourceEncoder
from tests.command_line import cli
from tests.commands import MAX_POSITIONS, load, run_interactive, run_train, translation
from tests.tasks.generating import COMMON, generate, hypotheses
from tests.tasks.tiny_text import EMPTY, LONG, TEST_LINES, WORDS


@pytest.fixture(scope="module")
def both_ways(data_bin, tmp_path_factory):
    """A checkpoint that translates en-de and de-en, trained long enough for its outputs to differ from each other."""
    folder = tmp_path_factory.mktemp("both-ways")
    more = cli(lang_pairs="en-de,de-en", max_epoch=16, save_interval=16, max_tokens=512, lr=0.01)
    run_train(translation(data_bin, folder, *more, "--disable-validation"))
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def translated(data_bin, both_ways):
    """{"en", "de": output of fairseq-generate from this language}."""
    return {pair[0]: generate(data_bin, both_ways, pair=pair) for pair in (("en", "de"), ("de", "en"))}


def assert_equal_hypotheses(one, other):
    for left, right in zip(hypotheses(one), hypotheses(other), strict=True):
        assert (left[0], left[3]) == (right[0], right[3])
        assert left[1] == pytest.approx(right[1], abs=1e-5)
        assert left[2] == pytest.approx(right[2], abs=1.5e-4)  # printed with four digits


def test_batch_of_one_equals_batch_of_many(data_bin, both_ways, translated):
    for size in (cli(batch_size=1), cli(max_tokens=90)):
        assert_equal_hypotheses(translated["en"], generate(data_bin, both_ways, *size))


@pytest.fixture(scope="module")
def other_model(data_bin, tmp_path_factory):
    """A checkpoint of the same form with other weights."""
    folder = tmp_path_factory.mktemp("other")
    more = cli(lang_pairs="en-de,de-en", max_update=20, lr=0.01, seed=7, disable_validation=True)
    run_train(translation(data_bin, folder, *more))
    return folder / "checkpoint_last.pt"


def test_every_line_gets_one_hypothesis(translated):
    """13 lines, no multiple of 8; the empty one stays empty, the over-long one is truncated and reported."""
    output = translated["en"]
    lines = output.lines("D")
    assert sorted(lines) == list(range(TEST_LINES)) and all(len(texts) == 1 for texts in lines.values())
    assert [number for number, texts in lines.items() if not texts[0].partition("\t")[2].strip()] == [EMPTY]
    assert output.lines("H")[EMPTY] == output.lines("D")[EMPTY]
    (reported,) = [record.getMessage() for record in output.records if "are truncated" in record.getMessage()]
    assert f"[{LONG + 1}]" in reported and f"({MAX_POSITIONS}, {MAX_POSITIONS})" in reported
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


def test_both_directions_read_the_same_bitext_and_write_the_target_language(data_bin, both_ways, translated):
    """Without -s and -t the first of --lang-pairs is translated."""
    for source, target in (("en", "de"), ("de", "en")):
        output, other = translated[source], translated[target]
        for number in range(TEST_LINES):
            assert output.lines("S")[number][0].replace("<s> ", "") == other.lines("T")[number][0] or number == LONG
        written = "".join(lines[0].partition("\t")[2].replace(" ", "") for lines in output.lines("D").values())
        found = {code: sum(written.count(word) for word in WORDS[code] if len(word) > 3) for code in (source, target)}
        assert found[target] > 5 * found[source], (source, found)
    first = generate(data_bin, both_ways, "--lang-pairs", "de-en", pair=None)
    assert hypotheses(first) == hypotheses(translated["de"])


def test_batches_name_their_languages(data_bin, both_ways, tmp_path, monkeypatch):
    """The decoder starts from the target's symbol, the encoder adds the source's embedding, in training and search."""
    dictionary = XLDictionary.load(data_bin / "dict.txt")
    pad, codes, directions = dictionary.pad(), dictionary.languages, set()
    line = translation(
        data_bin, tmp_path, "--lang-pairs", "en-de,de-en", "--max-epoch", 1, "--disable-validation", "--no-save"
    )
    for sample in (sample for samples in run_train(line).samples.values() for sample in samples):
        batch, target = sample["batch"], sample["batch"]["target"]
        given, followed = batch["prev_output_tokens"], target[:, 1:] != pad
        assert torch.equal(given[:, 1:][followed], target[:, :-1][followed])
        for start, source, tokens in zip(given[:, 0], batch["languages"][:, 0], batch["tokens"], strict=True):
            words = dictionary.string(tokens[tokens != pad], "sentencepiece").removeprefix("<s>").split()
            assert words and set(words) <= set(WORDS[codes[source]])
            directions.add((codes[source], dictionary[start]))
    assert directions == {("en", "[de]"), ("de", "[en]")}

    seen, encode, step = set(), SourceEncoder.forward, BeamSearch.step

    def seen_encode(self, src_tokens, src_lengths=None, src_languages=None):
        seen.update(codes[language] for language in src_languages.tolist())
        return encode(self, src_tokens, src_lengths, src_languages)

    def seen_step(self, number, log_probabilities, scores, prev_output_tokens, *arguments):
        seen.update(dictionary[token] for token in prev_output_tokens[:, 0].tolist())
        return step(self, number, log_probabilities, scores, prev_output_tokens, *arguments)

    monkeypatch.setattr(SourceEncoder, "forward", seen_encode)
    monkeypatch.setattr(BeamSearch, "step", seen_step)
    for source, target in (("en", "de"), ("de", "en")):
        seen.clear()
        generate(data_bin, both_ways, pair=(source, target))
        assert seen == {source, f"[{target}]"}


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
def test_interactive_translates_line_by_line(data_bin, corpus, both_ways, translated, options):
    """Three lines in, three out, in order; an empty one stays empty; the same as fairseq-generate's."""
    lines = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()
    chosen = [3, EMPTY, 0]
    output = interactive(data_bin, both_ways, pieces(data_bin, [lines[number] for number in chosen]), *options)
    assert list(output.lines("D")) == [0, 1, 2]
    generated = translated["en"].lines("H")
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
    """By default with the folder's model. Pieces that --remove-bpe has joined are not joined again: blanks stay."""
    raw = (corpus / "test.en-de.en").read_text(encoding="utf-8").splitlines()[:3]
    named = cli(bpe="sentencepiece", sentencepiece_model=data_bin / "sentencepiece.model")
    encoded, plain, default, both = (
        interactive(data_bin, both_ways, lines, *more)
        for lines, more in ((pieces(data_bin, raw), []), (raw, named), (raw, []), (raw, [*named, "--remove-bpe"]))
    )
    assert [lines[0] for lines in plain.lines("H").values()] == [lines[0] for lines in encoded.lines("H").values()]
    assert (default.lines("S"), default.lines("D")) == (plain.lines("S"), plain.lines("D"))
    assert all("▁" not in lines[0] for lines in plain.lines("D").values())
    assert both.lines("D") == plain.lines("D")
    assert any(" " in lines[0].partition("\t")[2] for lines in both.lines("D").values())


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
    output, soft = (
        generate(data_bin, both_ways, "--print-alignment", *more, *cli(beam=2, batch_size=1)) for more in ([], ["soft"])
    )
    assert_equal_hypotheses(output, generate(data_bin, both_ways, "--beam", 2))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(both_ways)], {"data": str(data_bin)})
    dictionary, layer = task.dictionary, model.eval().decoder.layers[-1].cross_attention
    aligned = 0
    for number, (line,) in output.lines("A").items():
        (source,), text = output.lines("S")[number], hypotheses(output)[number][3]
        if not source or len(source.split()) > MAX_POSITIONS - 2:
            continue
        ids = [[dictionary.index(piece) for piece in side.split()] for side in (source, text)]
        started = torch.tensor([[dictionary.language_symbol("de"), *ids[1]]])
        english = torch.tensor([dictionary.language_id("en")])
        encoder_out = model.encoder(torch.tensor([[0, *ids[0], 2]]), None, english)
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
        rows = [[float(weight) for weight in row.split(",")] for row in soft.lines("A")[number][0].split()]
        assert all(len(row) == len(ids[0]) + 1 and 0 <= sum(row) <= 1 + 1e-4 for row in rows)
        assert sum(map(len, rows)) or not ids[1]
        aligned += len(best)
    assert aligned > 40 and len(soft.lines("A")) == TEST_LINES


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


# Options: each has its effect or is refused


def test_shards_are_every_second_batch(data_bin, both_ways):
    whole = generate(data_bin, both_ways, "--batch-size", 3).lines("H")
    shards = [generate(data_bin, both_ways, *cli(batch_size=3, num_shards=2, shard_id=n)).lines("H") for n in (0, 1)]
    assert (
        shards[0] | shards[1] == whole and not shards[0].keys() & shards[1].keys() and len(shards[0]) > len(shards[1])
    )


EXCLUDE = ["--sampling", "--beam", 2, "--nbest", 2]


@pytest.mark.parametrize(
    "command, options, said",
    [
        (generate, ["--sacrebleu"], "--sacrebleu.*--scoring sacrebleu"),
        (generate, ["--replace-unk"], "--replace-unk"),
        (generate, ["--skip-invalid-size-inputs-valid-test"], "--skip-invalid-size-inputs-valid-test.*truncated"),
        (generate, ["--required-batch-size-multiple", 3], "--required-batch-size-multiple 3"),
        (generate, ["--bf16"], "--bf16.*--fp16"),
        (generate, ["--distributed-world-size", 2], "--distributed-world-size 2.*--num-shards"),
        (generate, ["--nbest", 3, "--beam", 2], "--nbest 3: --beam 2"),
        (generate, ["--beam", 99999999], "--beam 99999999: a number below 10000"),
        (generate, ["--temperature", 0], "--temperature 0"),
        (generate, ["--sampling-topk", 3], "--sampling-topk 3: --sampling is needed"),
        (generate, ["--sampling-topp", 0.5], "--sampling-topp 0.5: --sampling is needed"),
        (generate, [*EXCLUDE, "--sampling-topk", 99999], "--sampling-topk 99999"),
        (generate, [*EXCLUDE, "--sampling-topp", 1.5], "--sampling-topp 1.5"),
        (
            generate,
            [*EXCLUDE, "--sampling-topp", 0.5, "--sampling-topk", 3],
            "--sampling-topk has no effect with --sampling-topp",
        ),
        (generate, [*EXCLUDE, "--diverse-beam-groups", 2], "--sampling and --diverse-beam-groups exclude each other"),
        (generate, ["--constraints"], "--constraints: only fairseq-interactive reads constraints"),
        (generate, ["--constraints", "--match-source-len"], "--match-source-len and --constraints exclude"),
        (generate, ["--diverse-beam-groups", 3], "--diverse-beam-groups 3.*--beam 5"),
        (generate, ["--diverse-beam-strength", 0.1], "--diverse-beam-groups is needed"),
        (generate, ["--match-source-len"], "--max-len-b have no effect with --match-source-len"),
        (generate, ["--score-reference", "--lenpen", 2], "--lenpen has no effect with --score-reference"),
        (generate, ["--num-shards", 7, "--shard-id", 6], "--shard-id 6: the text has . batches only"),
        (generate, ["--num-shards", 2, "--shard-id", 2], "--shard-id 2"),
        (generate, ["--shard-id", 1], "--shard-id 1"),
        (interactive, ["--prefix-size", 1], "--prefix-size"),
        (interactive, ["--results-path", "FOLDER"], "--results-path"),
        (interactive, ["--print-alignment", "soft"], "--print-alignment soft"),
        (interactive, ["--batch-size", 2], "--batch-size 2 is larger than --buffer-size"),
        (interactive, ["--gen-subset", "valid"], "--gen-subset"),
        (interactive, ["--scoring", "chrf"], "--scoring chrf"),
        (interactive, ["--num-shards", 2], "--num-shards and --shard-id have no effect"),
        (interactive, ["--post-process", "letter"], "--post-process letter does not fit .*: give sentencepiece"),
        (
            interactive,
            ["--target-pieces-only", "--constraints"],
            "--target-pieces-only does not work with --constraint",
        ),
    ],
)
def test_options_without_effect_are_refused(data_bin, both_ways, tmp_path, command, options, said):
    options = [tmp_path if option == "FOLDER" else option for option in options]
    with pytest.raises(UserError, match=said):
        command(data_bin, both_ways, *([["das\tHaus"]] if command is interactive else []), *options)
    assert not any(tmp_path.iterdir())
