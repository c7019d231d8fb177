"""Validation in fairseq-train reads a fixed sample, fairseq-validate the whole split; ranks get similar batches."""

import re

import pytest
from fairseq.tasks import FairseqTask

from fairseq_xl.evaluation.ranking_scores import ndcg
from fairseq_xl.evaluation.task_files import read_queries
from fairseq_xl.tasks.planned_batches import EvaluationDataset, PlannedBatches
from tests.builders import ranked, several, validation_losses, write_others, write_task
from tests.command_line import cli
from tests.commands import classification, evaluated, labeled, run_train, run_validate, translation
from tests.tasks.resuming import check_stop
from tests.tasks.tiny_text import WORDS, sentences

LAST = "checkpoint_last.pt"
SAMPLE = re.compile(r"validation on valid reads a fixed sample: (\d+) of (\d+) examples, at most 3 of each (.*)")
EPOCH = re.compile(r"^batches of epoch (\d): \d+\.\d % of the tokens are padding$", re.M)
QUERIES = 9


def write_queries(root):
    """Queries of four texts each in English and German: 9 in each language for validation."""
    root.mkdir()
    for split, queries in {"train": 20, "valid": QUERIES}.items():
        drawn = sentences(WORDS, 4 * queries, f"{split} queries")
        for code in ("en", "de"):
            (root / f"{split}.{code}.tsv").write_text("\n".join(ranked(code, drawn[code])), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name of a task: folder of its files}. Read only."""
    root = tmp_path_factory.mktemp("examples")
    made = {"nc": write_task(root / "nc", sides=1), "queries": write_queries(root / "queries")}
    return made | write_others(root)


@pytest.fixture
def validated(monkeypatch):
    """(corpus, number) of the examples that are validated, in order."""
    found, step = [], FairseqTask.valid_step

    def recorded(self, sample, *more):
        found.extend((f"{sample['objective']} {sample['corpus']}", number) for number in sample["id"].tolist())
        return step(self, sample, *more)

    monkeypatch.setattr(FairseqTask, "valid_step", recorded)
    return found


@pytest.fixture
def collated(monkeypatch):
    """(corpus, number) of the examples of which batches are made outside of training."""
    found = set()
    for kind in (PlannedBatches, EvaluationDataset):

        def of_plan(self, spec, kind=kind, planned=kind.__getitem__):
            sample = planned(self, spec)
            if type(self) is kind and self.split != "train":
                found.update((f"{spec.objective} {spec.corpus_name}", index) for index in sample["id"].tolist())
            return sample

        monkeypatch.setattr(kind, "__getitem__", of_plan)
    return found


def ranking(data, folder, save_dir, *more):
    chosen = cli(task="xl_ranking", criterion="xl_ranking", arch="xl_xlm_tiny", layers=1)
    return [data, *chosen, *labeled(folder, save_dir), *more]


#: name of the task -> (command line, what is sampled, how many groups there are)
TASKS = {
    "xl_translation": (lambda data, _, *more: translation(data, *more, "--lang-pairs", "en-de,fr-en"), "direction", 2),
    "xl_ranking": (lambda data, files, *more: ranking(data, files["queries"], *more), "language", 2),
    "xl_pretraining": (
        lambda data, files, *more: several(data, {name: files[name] for name in ("nc", "ner")}, *more),
        "language or pair and objective",
        4,
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_training_validates_on_a_fixed_sample_and_fairseq_validate_on_all(
    name, data_bin, files, validated, collated, tmp_path
):
    line, group, groups = TASKS[name]
    short = cli(max_epoch=2, no_epoch_checkpoints=True, validation_examples=3)
    output = run_train([*line(data_bin, files, tmp_path / "one"), *short])
    ((used, every, shown),) = SAMPLE.findall(output.log)
    assert shown == f"{group} (--validation-examples; 0: all)" and int(used) == 3 * groups < int(every)
    sample, again = sorted(validated[: int(used)]), sorted(validated[int(used) :])
    assert sample == again and len(set(sample)) == int(used)
    assert sorted(collated) == sample  # also in the pass over the split with which fairseq-train begins
    assert EPOCH.findall(output.log) == ["1", "2"]
    validated.clear()  # another seed, other batches, and a start in the middle of a run
    more = cli(max_update=1, seed=5, update_freq=2, batch_size=2, validation_examples=3)
    run_train([*line(data_bin, files, tmp_path / "two"), *more])
    assert sorted(validated) == sample
    validated.clear()
    resumed = run_train([*line(data_bin, files, tmp_path / "one"), *short, *cli(max_epoch=3, validation_examples=0)])
    assert len(set(validated)) == len(validated) == int(every)
    assert "fixed sample" not in resumed.log and "other settings" not in resumed.log
    validated.clear()
    evaluated = cli(task=name, path=tmp_path / "two" / LAST, user_dir="fairseq_xl", batch_size=8)
    whole = run_validate([data_bin, *evaluated])
    assert len(set(validated)) == len(validated) == int(every) and "fixed sample" not in whole.log
    both = run_validate([data_bin, *evaluated, "--valid-subset", "train,valid"])
    assert "fixed sample" not in both.log and "batches of epoch" not in both.log


@pytest.mark.parametrize("more", [[], cli(validation_examples=31)])
def test_sets_of_at_most_the_limit_are_read_whole(data_bin, files, validated, tmp_path, more):
    """31 examples of each language; by default 5,000 are the limit."""
    output = run_train([*classification(data_bin, files["nc"], tmp_path), "--max-update", 1, *more])
    assert len(set(validated)) == len(validated) == 62 and "fixed sample" not in output.log


def test_a_training_that_writes_predictions_validates_on_all_examples(data_bin, files, validated, tmp_path):
    more = cli(max_update=1, validation_examples=3, predictions_to=tmp_path / "predictions")
    output = run_train([*classification(data_bin, files["nc"], tmp_path / "run"), *more])
    assert len(set(validated)) == len(validated) == 62 and "fixed sample" not in output.log
    assert len((tmp_path / "predictions/valid.de.tsv").read_text(encoding="utf-8").splitlines()) == 31


def test_the_metric_of_a_sample_is_that_of_its_whole_queries(data_bin, files, validated, tmp_path):
    line = ranking(data_bin, files["queries"], tmp_path / "run", "--max-update", 3, *cli(validation_examples=4))
    (found,) = validation_losses(run_train(line))
    sample = list(validated)
    to = tmp_path / "predictions"
    run_validate(evaluated(data_bin, "ranking", tmp_path / "run" / LAST, batch_size=8, predictions_to=to))
    for code in ("en", "de"):
        queries = read_queries(files["queries"] / f"valid.{code}.tsv", code)
        rows = [row.split("\t") for row in (to / f"valid.{code}.tsv").read_text(encoding="utf-8").splitlines()]
        scores = {int(row[0]): float(row[3]) for row in rows}
        drawn = [queries[index] for corpus, index in sample if corpus == f"ranking {code}"]
        values = [ndcg(query.relevance, [scores[number] for number in query.lines]) for query in drawn]
        assert len(values) == 4 and all(len(query.texts) == 4 for query in drawn)
        assert float(found[f"ndcg_{code}"]) == pytest.approx(25 * sum(values), abs=0.01)


def drawn(output):
    """The examples of each update, sorted, of all its micro-steps."""
    return [sorted(index for each in samples for index in each["id"].tolist()) for samples in output.samples.values()]


def test_a_run_with_micro_steps_resumes_within_an_epoch(data_bin, files, tmp_path):
    """15 batches in 8 updates, then in 5; a run that goes on with one batch an update keeps the order as begun."""

    def line(folder, *more):
        settings = cli(update_freq="2,3", save_interval_updates=1, no_epoch_checkpoints=True)
        return classification(data_bin, files["nc"], folder, *settings, "--disable-validation", *more)

    whole = run_train(line(tmp_path / "whole", "--max-update", 12))
    check_stop(line, tmp_path / "parts", (tmp_path / "whole", whole), 5, 12)
    first = run_train(line(tmp_path / "changed", "--max-update", 2))
    rest = run_train(line(tmp_path / "changed", *cli(max_update=6, update_freq=1)))
    numbers = [index for update in drawn(first) + drawn(rest) for index in update]
    expected = [index for update in drawn(whole) for index in update]
    assert sorted(numbers) == sorted(expected[: len(numbers)]) and len(set(numbers)) == len(numbers)
