"""Batches of several languages through fairseq-train (U2, G1)."""

from tests.commands import equal_parameters, load, pretraining, run_train

BOTH = "mlm.length=16 tlm.length=32 mlm.mixed=true tlm.mixed=true mlm.alpha=0 tlm.alpha=0"


def line(data, folder, *more):
    return pretraining(
        data, folder, "--objective-options", BOTH, "--updates-per-epoch", 4, "--no-epoch-checkpoints", *more
    )


def test_batches_mix_languages_and_validation_tells_them_apart(data_bin, tmp_path):
    output = run_train(line(data_bin, tmp_path, "--max-update", 4))
    samples = [sample for update in output.samples.values() for sample in update]
    assert [sample["corpus"] for sample in samples] == ["mixed"] * 4
    for sample in samples:
        assert len(sample["batch"]["languages"].unique()) > 1
    assert "mlm_mixed_ppl" in output.log and "mlm_de_ppl" in output.log and "tlm_en-fr_ppl" in output.log


def test_a_stopped_run_resumes_bit_by_bit(data_bin, tmp_path):
    whole = run_train(line(data_bin, tmp_path / "whole", "--max-update", 6))
    parts = [
        run_train(line(data_bin, tmp_path / "parts", "--save-interval-updates", 1, "--max-update", stop))
        for stop in (3, 6)
    ]
    assert parts[0].losses + parts[1].losses == whole.losses
    ends = [load(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")]
    assert equal_parameters(*ends)
