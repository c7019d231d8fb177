"""Same-language generation through fairseq-train, -validate, -generate and -interactive."""

import io
import itertools
import json
import lzma
import math
import shutil
from contextlib import redirect_stdout

import pytest
import sacrebleu
import sentencepiece
import torch
from fairseq import checkpoint_utils
from fairseq.search import BeamSearch

from fairseq_xl.commands import predict, score_generation
from fairseq_xl.data.vocabulary.joint_dictionary import XLDictionary
from fairseq_xl.errors import UserError
from fairseq_xl.evaluation import generation_scores as scores
from fairseq_xl.evaluation.bleu import read_generated
from fairseq_xl.io.fingerprints import sha256_of
from fairseq_xl.models.encoder_decoder import SourceEncoder
from fairseq_xl.objectives.sequence import sequence_terms, with_whole_batch
from tests.builders import validation_losses
from tests.command_line import cli
from tests.commands import (
    denoising,
    equal_parameters,
    evaluated,
    generation,
    load,
    pretraining,
    run_generate,
    run_interactive,
    run_train,
    run_validate,
    translation,
)
from tests.tasks.initial_weights import initial
from tests.tasks.resuming import check_epochs_of_examples
from tests.tasks.tiny_text import WORDS, write
from tests.tasks.titles import SPLITS, write_titles

FNP = ["--arch", "xl_xfnp_tiny"]
LEARNING = ["--embed-dim", 32, "--ffn-dim", 64, "--dropout", 0, "--attention-dropout", 0, "--activation-dropout", 0]


@pytest.fixture(scope="module")
def task_files(tmp_path_factory):
    """Read only."""
    return write_titles(tmp_path_factory.mktemp("titles") / "files")


@pytest.fixture(scope="module")
def learned(data_bin, task_files, tmp_path_factory):
    """The folder and the output of a training on English and German."""
    folder = tmp_path_factory.mktemp("learned")
    more = cli(max_epoch=10, lr=0.01, best_checkpoint_metric="ppl", no_epoch_checkpoints=True)
    return folder, run_train(generation(data_bin, task_files, folder, *more, *LEARNING))


def generate(data, files, checkpoint, language, *more):
    search = cli(task_files=files, eval_langs=language, beam=2, max_len_b=12, remove_bpe="sentencepiece")
    return run_generate(evaluated(data, "generation", checkpoint, *search, *more))


def test_it_is_an_objective_beside_others(data_bin, task_files, learned, tmp_path):
    """A pass has each example once, in batches of one objective; metrics and titles are those of its own task."""
    options = (
        f"generation.task_files={task_files} generation.train_langs=en,de generation.eval_langs=en,de xdae.length=32"
    )
    more = cli(objectives="xdae,generation", objective_options=options, updates_per_epoch="auto", max_epoch=1, lr=0)
    select = cli(best_checkpoint_metric="generation_ppl", init_from=learned[0] / "checkpoint_best.pt")
    output = run_train(denoising(data_bin, tmp_path, *more, *select, *LEARNING, "--no-epoch-checkpoints"))
    samples = [sample for update in output.samples.values() for sample in update]
    texts = [sample for sample in samples if sample["objective"] == "generation"]
    assert sum(len(sample["id"]) for sample in texts) == 2 * SPLITS["train"] and len(texts) < len(samples)
    found, best = validation_losses(output)[-1], min(float(each["ppl"]) for each in validation_losses(learned[1]))
    assert float(found["generation_ppl"]) == pytest.approx(best, abs=0.002)
    assert {"generation_en_ppl", "xdae_ppl"} <= found.keys()
    evaluation = cli(task="xl_pretraining", path=tmp_path / "checkpoint_last.pt", user_dir="fairseq_xl", batch_size=8)
    (again,) = validation_losses(run_validate([data_bin, *evaluation]))
    assert again["generation_en_loss"] == found["generation_en_loss"]
    written = generate(data_bin, task_files, tmp_path / "checkpoint_last.pt", "de").lines("D")
    titles = (task_files / "test.de.tgt").read_text(encoding="utf-8").splitlines()
    right = [written[number][0].split("\t")[1] == title for number, title in enumerate(titles)]
    assert sum(right) > SPLITS["test"] / 2
    with pytest.raises(UserError, match="trained by xl_pretraining: text is written by `fairseq-inter") as refused:
        predict.main([str(tmp_path / "checkpoint_last.pt"), str(data_bin), "--beam", "2"])
    *command, language = str(refused.value).split("`")[1].split()[1:]
    assert language == "LANGUAGE"
    sources = (task_files / "test.de.src").read_text(encoding="utf-8").splitlines()
    texts = run_interactive([*command, "de", "--max-len-b", 12], sources).lines("D").values()
    assert [text.partition("\t")[2] for (text,) in texts] == titles


def test_it_learns_and_is_scored_in_each_language(data_bin, task_files, learned, tmp_path):
    folder, _ = learned
    for code in ("en", "de"):
        generate(data_bin, task_files, folder / "checkpoint_best.pt", code, "--results-path", tmp_path / code)
    with redirect_stdout(io.StringIO()) as printed:
        score_generation.main([str(tmp_path), "--references", str(task_files), "--langs", "en,de", "--bootstrap", "20"])
    result = json.loads(printed.getvalue())
    assert result["missing"] == [] and result["languages"]["de"]["n"] == SPLITS["test"]
    assert result["average"]["rouge_l"] > 60
    for code in ("en", "de"):
        note = json.loads((tmp_path / code / "generate-test.txt.json").read_text(encoding="utf-8"))
        assert note["sha256"] == sha256_of(folder / "checkpoint_best.pt")
        texts = read_generated(tmp_path / code / "generate-test.txt")[0]
        expected = (task_files / f"test.{code}.tgt").read_text(encoding="utf-8").splitlines()
        assert result["languages"][code]["bleu"]["score"] == scores.bleu(texts, expected)["score"]


def test_text_without_targets_has_no_loss(data_bin, task_files, learned, tmp_path):
    shutil.copy(task_files / "test.de.src", tmp_path)
    line = evaluated(data_bin, "generation", learned[0] / "checkpoint_best.pt", valid_subset="test", batch_size=5)
    with pytest.raises(UserError, match="text without targets has no loss: fairseq-generate writes outputs of it"):
        run_validate([*line, *cli(task_files=tmp_path, eval_langs="de")])


def test_validation_bleu_is_that_of_greedy_generation(data_bin, tmp_path):
    """Lower-cased, of each language; the best mean is kept. Targets are long enough for four-grams."""
    task_files, count = tmp_path / "files", {"train": 24, "valid": 12}
    task_files.mkdir()
    for split, code in itertools.product(count, ("en", "de")):
        words = [WORDS[code][number % 3] for number in range(count[split])]
        for side, length in (("src", 2), ("tgt", 5)):
            write(task_files / f"{split}.{code}.{side}", [" ".join([word] * length) for word in words])
    select = cli(eval_bleu=True, best_checkpoint_metric="bleu", maximize_best_checkpoint_metric=True)
    options = cli(max_epoch=6, lr=0.01, no_epoch_checkpoints=True)
    output = run_train(generation(data_bin, task_files, tmp_path, *FNP, *LEARNING, *options, *select))
    seen = validation_losses(output)
    best = max(seen, key=lambda found: float(found["bleu"]))
    mean = (float(best["bleu_en"]) + float(best["bleu_de"])) / 2
    assert mean > 1 and float(best["bleu"]) == pytest.approx(mean, abs=0.01)
    assert {"wrong_language_de", "length_ratio_en"} <= best.keys()
    for code in ("en", "de"):
        greedy = cli(gen_subset="valid", beam=1, max_len_a=1.3, max_len_b=4, results_path=tmp_path / code)
        generate(data_bin, task_files, tmp_path / "checkpoint_best.pt", code, *greedy)
        texts = read_generated(tmp_path / code / "generate-valid.txt")[0]
        expected = (task_files / f"valid.{code}.tgt").read_text(encoding="utf-8").splitlines()
        score = sacrebleu.corpus_bleu(texts, [expected], lowercase=True).score
        assert float(best[f"bleu_{code}"]) == pytest.approx(score, abs=0.01)


def test_the_best_average_over_languages_is_kept(data_bin, task_files, learned):
    folder, output = learned
    seen = validation_losses(output)
    assert len(seen) == 10
    for found in seen:
        assert float(found["ppl"]) == pytest.approx((float(found["ppl_en"]) + float(found["ppl_de"])) / 2, abs=0.01)
    assert float(seen[-1]["ppl"]) < 0.6 * float(seen[0]["ppl"])
    line = evaluated(data_bin, "generation", folder / "checkpoint_best.pt", batch_size=4)
    (found,) = validation_losses(run_validate(line))
    assert float(found["ppl"]) == pytest.approx(min(float(found["ppl"]) for found in seen), abs=0.002)


@pytest.mark.parametrize("langs", [cli(eval_langs="de,fr"), cli(eval_langs="en", valid_langs="fr")])
def test_perplexities_are_those_of_lines_by_themselves(data_bin, task_files, learned, langs):
    """The lines are encoded, framed and scored one by one, without padding; --valid-langs names the languages."""
    path = learned[0] / "checkpoint_best.pt"
    line = evaluated(data_bin, "generation", path, batch_size=5)
    (found,) = validation_losses(run_validate([*line, *langs]))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    pieces, model = sentencepiece.SentencePieceProcessor(str(data_bin / "sentencepiece.model")), model.eval()
    codes = langs[-1].split(",")
    assert {f"ppl_{code}" for code in codes} == {name for name in found if name.startswith("ppl_")}
    for code in codes:
        bits, count = 0.0, 0
        for sides in zip(*((task_files / f"valid.{code}.{side}").read_text().splitlines() for side in ("src", "tgt"))):
            source, target = (
                [task.dictionary.index(piece) for piece in pieces.encode(text, out_type=str)] + [2] for text in sides
            )
            start, language = task.dictionary.index(f"[{code}]"), task.dictionary.languages.index(code)
            with torch.no_grad():
                encoded = model.encoder(torch.tensor([[0, *source]]), src_languages=torch.tensor([language]))
                logits, _ = model.decoder(torch.tensor([[start, *target[:-1]]]), encoded)
            chosen = logits[0].log_softmax(-1).gather(1, torch.tensor(target)[:, None])
            bits, count = bits - float(chosen.sum()), count + len(target)
        assert float(found[f"ppl_{code}"]) == pytest.approx(torch.tensor(bits / count).exp().item(), rel=1e-3)


def test_a_language_that_was_not_trained_starts_from_its_symbol(data_bin, task_files, learned, monkeypatch):
    dictionary, seen = XLDictionary.load(data_bin / "dict.txt"), []
    step, encode = BeamSearch.step, SourceEncoder.forward

    def seen_step(self, number, log_probabilities, scores, prev_output_tokens, *arguments):
        seen.append({dictionary[token] for token in prev_output_tokens[:, 0]})
        return step(self, number, log_probabilities, scores, prev_output_tokens, *arguments)

    def seen_encode(self, src_tokens, src_lengths=None, src_languages=None):
        seen.append({f"[{dictionary.languages[language]}]" for language in src_languages})
        return encode(self, src_tokens, src_lengths, src_languages)

    monkeypatch.setattr(BeamSearch, "step", seen_step)
    monkeypatch.setattr(SourceEncoder, "forward", seen_encode)
    output = generate(data_bin, task_files, learned[0] / "checkpoint_best.pt", "fr")
    assert len(output.lines("D")) == SPLITS["test"] and len(seen) > 2
    assert all(symbols == {"[fr]"} for symbols in seen)


def test_batches_name_their_languages(data_bin, task_files, tmp_path):
    """Training batches mix languages; the decoder reads [xx] y and predicts y </s> in the source's language."""
    dictionary, found, mixed = XLDictionary.load(data_bin / "dict.txt"), set(), 0
    line = generation(data_bin, task_files, tmp_path, "--max-epoch", 1, "--disable-validation", "--no-save")
    for sample in (sample for samples in run_train(line).samples.values() for sample in samples):
        batch, pad = sample["batch"], dictionary.pad()
        mixed += len(set(batch["languages"].flatten().tolist())) > 1
        for row in range(len(batch["tokens"])):
            tokens, given, target = (
                [token for token in batch[name][row].tolist() if token != pad]
                for name in ("tokens", "prev_output_tokens", "target")
            )
            code = dictionary.languages[int(batch["languages"][row])]
            assert given[: len(target)] == [dictionary.index(f"[{code}]"), *target[:-1]] and target[-1] == 2
            texts = [dictionary.string(torch.tensor(part), "sentencepiece") for part in (tokens[1:], target)]
            assert texts[1].split()[0] in texts[0].split() and set(texts[0].split()) <= set(WORDS[code])
            found.add((code, *texts))
    pairs = (
        zip(
            *((task_files / f"train.{code}.{side}").read_text(encoding="utf-8").splitlines() for side in ("src", "tgt"))
        )
        for code in ("en", "de")
    )
    assert mixed and found == {(code, *pair) for code, each in zip(("en", "de"), pairs) for pair in each}


def test_resume_is_exact(data_bin, task_files, tmp_path):
    def line(folder, *more):
        return generation(data_bin, task_files, folder, *more, "--label-smoothing", 0.1)

    check_epochs_of_examples(line, tmp_path)


def test_smoothing_is_for_training_only(data_bin, task_files, tmp_path):
    """With the learning rate 0, training losses differ and validation losses do not."""
    more = cli(max_update=1, no_save=True, lr=0, dropout=0, attention_dropout=0)
    line = generation(data_bin, task_files, tmp_path, *more)
    outputs = [run_train([*line, "--label-smoothing", smoothing]) for smoothing in (0, 0.3)]
    assert outputs[0].losses != outputs[1].losses
    assert validation_losses(outputs[0])[0]["loss"] == validation_losses(outputs[1])[0]["loss"]


def test_long_examples_are_truncated_and_counted(data_bin, task_files, tmp_path):
    files = shutil.copytree(task_files, tmp_path / "files")
    with open(files / "train.de.src", "a") as source, open(files / "train.de.tgt", "a") as target:
        source.write("das Haus " * 100 + "\n")
        target.write("Haus\n")
    more = cli(length=30, max_epoch=1, disable_validation=True, no_epoch_checkpoints=True)
    output = run_train(generation(data_bin, files, tmp_path / "run", *more))
    warning = "train: of 241 examples 1 sources have more than 30 tokens (--length) and 0 targets more than 40"
    assert output.log.count(warning) == 1
    rows = [row for samples in output.samples.values() for sample in samples for row in sample["batch"]["tokens"]]
    longest = max(rows, key=lambda row: int(row.ne(1).sum()))
    assert len(rows) == 241 and int(longest.ne(1).sum()) == 30 and longest[0] == 0 and longest[29] == 2
    with open(files / "test.de.src", "w") as source, open(files / "test.de.tgt", "w") as target:
        source.write("das Haus " * 100 + "\n\nder Garten\n")
        target.write("Haus\n\nGarten\n")
    output = generate(data_bin, files, tmp_path / "run/checkpoint_last.pt", "de")
    assert "test: of 3 examples 1 sources have more than 30 tokens" in output.log  # as in fine-tuning
    assert sorted(output.lines("D")) == [0, 1, 2] and output.lines("D")[1][0].partition("\t")[2] == ""
    assert len(output.lines("S")[0][0].split()) == 30 - 2  # and two symbols
    output = generate(data_bin, files, tmp_path / "run/checkpoint_last.pt", "de", "--length", 35)
    assert "more than 35 tokens" in output.log and len(output.lines("S")[0][0].split()) == 35 - 2
    state = torch.load(tmp_path / "run/checkpoint_last.pt", weights_only=True)
    state["task_state"]["fairseq_xl"]["length"] = 20
    torch.save(state, tmp_path / "shorter.pt")
    for paths in (["run/checkpoint_last.pt", "shorter.pt"], ["shorter.pt", "run/checkpoint_last.pt"]):
        output = generate(data_bin, files, ":".join(str(tmp_path / path) for path in paths), "de")
        assert "more than 20 tokens" in output.log


# The first weights


@pytest.fixture(scope="module")
def pretrained(data_bin, tmp_path_factory):
    """{"xdae", "xfnp", "mlm"}: checkpoints of one update."""
    folder = tmp_path_factory.mktemp("pretrained")
    run_train(denoising(data_bin, folder / "xfnp", *FNP, "--max-update", 1, "--disable-validation", objectives="xfnp"))
    run_train(denoising(data_bin, folder / "xdae", "--max-update", 1, "--disable-validation"))
    run_train(pretraining(data_bin, folder / "mlm", "--max-update", 1, "--disable-validation", objectives="mlm"))
    return {name: folder / name / "checkpoint_last.pt" for name in ("xdae", "xfnp", "mlm")}


def test_fine_tuning_starts_from_a_whole_denoiser(data_bin, task_files, pretrained, tmp_path):
    state, _ = initial(generation(data_bin, task_files, tmp_path, *cli(init_from=pretrained["xdae"])))
    assert equal_parameters(state, load(pretrained["xdae"]))


def test_all_streams_are_fine_tuned_and_the_first_one_is_scored(data_bin, task_files, pretrained, tmp_path):
    """An xFNP's loss is the sum over its streams; its perplexity and output come from the first."""
    more = cli(init_from=pretrained["xfnp"], dropout=0, attention_dropout=0, activation_dropout=0, max_update=3, lr=0)
    output = run_train(generation(data_bin, task_files, tmp_path, *FNP, *more))
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert equal_parameters(load(checkpoint), load(pretrained["xfnp"]))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    with torch.no_grad():
        for number, (sample,) in output.samples.items():
            terms = sequence_terms(model.eval(), sample["batch"])
            assert len(terms) == 2
            total = float(sum(term.sum for term in terms))
            assert float.fromhex(output.updates[number][0]) == pytest.approx(total, rel=1e-5)
        task.load_dataset("valid")
        found = validation_losses(output)[0]
        epochs = task.get_batch_iterator(task.datasets["valid"], max_sentences=1000)
        samples = map(with_whole_batch, epochs.next_epoch_itr(shuffle=False))
        batches = {sample["corpus"]: sample["batch"] for sample in samples}
        for code in ("en", "de"):
            first = sequence_terms(model, batches[code])[0]
            assert float(found[f"ppl_{code}"]) == pytest.approx(math.exp(first.sum / first.count), rel=1e-3)
    assert len(generate(data_bin, task_files, checkpoint, "de").lines("D")) == SPLITS["test"]


def refused(line, *sentence, run=run_train):
    with pytest.raises(UserError) as error:
        run(line)
    assert "\n" not in str(error.value)
    for part in sentence:
        assert str(part) in str(error.value), str(error.value)


def test_checkpoints_that_do_not_fit(data_bin, task_files, pretrained, learned, tmp_path):
    line = generation(data_bin, task_files, tmp_path / "run")
    for more, sentence in (
        (cli(init_from=pretrained["xdae"], decoder_layers=2), "1 layers, the new decoder"),
        (cli(init_from=pretrained["xdae"], init_encoder_from=pretrained["mlm"]), "--init-from initializes"),
        (
            cli(init_encoder_from=pretrained["mlm"], init_decoder_from=learned[0] / "checkpoint_best.pt"),
            "--arch xl_xdae_tiny: encoder and decoder must be initialized from the same checkpoint",
        ),
        (cli(finetune_from_model=pretrained["xdae"]), "start fine-tuning from it with --init-from"),
        (cli(init_from=pretrained["xfnp"]), "a decoder with predicting streams: it is for --arch xl_xfnp_* alone"),
    ):
        refused([*line, *more], sentence)
    with pytest.raises(UserError, match="not fine-tuned by xl_generation: start fine-tuning from it with --init-from"):
        generate(data_bin, task_files, pretrained["xdae"], "de")


def test_files_are_checked_before_anything_is_encoded(data_bin, task_files, tmp_path, monkeypatch):
    files = shutil.copytree(task_files, tmp_path / "files")
    german = "der Ausschuss hat seinen Bericht über die Straßen im Norden veröffentlicht\n"
    (files / "train.en.tgt").write_text(german * SPLITS["train"], encoding="utf-8")
    line = generation(data_bin, files, tmp_path / "run")
    log = run_train([*line, "--max-update", 1, "--no-save"]).log
    assert "train.en.tgt looks like de (120 of 120 sampled texts) instead of en, first line 1" in log
    monkeypatch.setattr("fairseq_xl.objectives.data_folder.TextEncoder", None)
    (files / "test.de.tgt").write_text("one\n")
    refused(line, "test.de.src has 11 lines", "test.de.tgt has 1")
    refused([*line, "--best-checkpoint-metric", "bleu"], "--best-checkpoint-metric bleu")


def test_options_that_do_not_fit(data_bin, task_files, learned, tmp_path):
    line = translation(data_bin, tmp_path / "mt", *cli(task="xl_generation", criterion="xl_generation", length=40))
    refused(line, "xl_generation needs an encoder-decoder: --arch xl_xdae_tiny")
    with pytest.raises(UserError, match="--score-reference is not supported by xl_generation: fairseq-validate"):
        generate(data_bin, task_files, learned[0] / "checkpoint_best.pt", "de", "--score-reference")


def test_files_that_are_wrong(data_bin, task_files, tmp_path):
    for number, (name, content, sentence) in enumerate(
        [
            ("train.de.tgt", None, "train.de.tgt: no such file of raw text"),
            ("train.de.tgt", b"ein Haus\n", "train.de.src has 120 lines but {files}/train.de.tgt has 1"),
            ("train.de.src", b"", "train.de.src is empty"),
            ("train.en.tgt", b"house\n" * 119 + b" \n", "train.en.tgt, line 120: an empty line"),
            ("test.de.src", b"Haus\n", "test.de.src has 1 lines but"),
        ]
    ):
        files = shutil.copytree(task_files, tmp_path / f"{number}")
        (files / name).unlink()
        if content is not None:
            (files / name).write_bytes(content)
        refused(generation(data_bin, files, tmp_path / "run"), sentence.format(files=files))
        assert not list(tmp_path.glob("run/*.pt"))


def test_no_files_and_files_in_two_folders(data_bin, task_files, tmp_path):
    line = generation(data_bin, task_files, tmp_path)
    place = line.index("--task-files")
    refused(line[:place] + line[place + 2 :], "--task-files: name a folder")
    (tmp_path / "packed").mkdir()
    for path in task_files.glob("train.*"):
        (tmp_path / "packed" / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
    joined = f"{tmp_path / 'packed'}:{task_files}"
    assert len(run_train(generation(data_bin, joined, tmp_path, "--max-update", 1, "--no-save")).updates) == 1
