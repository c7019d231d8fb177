"""The base of the task whose batches are planned."""

from types import SimpleNamespace

from fairseq_xl.tasks.planned_batches import PlannedBatches, PlannedTask


def test_a_task_that_forgot_no_plans_has_none():
    task, dataset = PlannedTask.__new__(PlannedTask), PlannedBatches({}, {})
    task.cfg, task.objectives, task.datasets = SimpleNamespace(validation_examples=0), {}, {"valid": dataset}
    task.evaluates = task.training_begun = False
    assert task.get_batch_iterator(dataset, max_tokens=100).specs == []
    (plan,) = task._validation_plans.values()
    assert plan == []
    task.reset_plans()
    assert task._validation_plans == {}
