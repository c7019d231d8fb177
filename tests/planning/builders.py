"""Flags of a small pre-training."""

PRETRAIN = (
    *("--task", "xl_pretraining", "--criterion", "xl_pretraining", "--arch", "xl_xlm_tiny", "--max-positions", "64"),
    *("--objectives", "mlm", "--objective-options", "mlm.length=64 mlm.batch_sentences=4"),
    *("--optimizer", "adam", "--lr", "0.001", "--updates-per-epoch", "10", "--max-tokens", "1024"),
)
