#!/usr/bin/env bash
# classify.sh DATA SAVE_DIR TASK_FILES TRAIN_LANGS EVAL_LANGS [CONFIG.yaml ...] [--flag value ...]: fine-tunes a
# classifier (X9), selects the epoch with the best validation average over EVAL_LANGS, predicts their test files and
# writes SAVE_DIR/scores.json. Commas separate languages. --init-from CHECKPOINT sets the encoder's weights (default:
# random). Without CONFIG the model has the paper's size; config/finetune-toy.yaml is small. A repeated run
# resumes; a SAVE_DIR that was made with other settings or weights is refused.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 5 "$@"
exec bash "$recipe/../finetune.sh" classification "$@"
