#!/usr/bin/env bash
# classify.sh DATA SAVE_DIR TASK_FILES TRAIN_LANGS EVAL_LANGS [CONFIG.yaml ...] [--flag value ...]: fine-tunes a
# classifier (X9), selects the epoch with the best validation average over EVAL_LANGS, predicts their test files and
# writes SAVE_DIR/scores.json. Commas separate languages. --init-from CKPT sets the encoder's weights (default: random).
# Without CONFIG the model has the paper's size; config/classify-toy.yaml is small. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 5 "$@"
data=$1 save=$2 files=$3 train=$4 evaluate=$5
shift 5
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$save"
python "$recipe/../launch.py" train "$data" "$recipe/config/classify.yaml" "$@" --task-files "$files" \
    --train-langs "$train" --eval-langs "$evaluate" --save-dir "$save" --log-file "$save/train.log"
python "$recipe/../launch.py" validate "$data" "$recipe/config/classify-test.yaml" --path "$save/checkpoint_best.pt" \
    --task-files "$files" --eval-langs "$evaluate" --predictions-to "$save/predictions" >"$save/test.log" 2>&1 ||
    { what_failed "$save/test.log"; exit 1; }
replacing "$save/scores.json" python -m fairseq_xl score classification "$save/predictions" --langs "$evaluate"
