#!/usr/bin/env bash
# mine.sh DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: hard negatives for paraphrase classification (U5).
# Trains a deep averaging network on random negatives in SAVE_DIR. Writes the negatives that it finds beside the
# training sentence pairs of DATA, and statistics to SAVE_DIR/mined.json. Flags are those of the training. Its
# paraphrase_similarity.length (128) is also the greatest length of negatives. For other options of mining, run
# `fairseq-xl mine-negatives SAVE_DIR/checkpoint_best.pt DATA`. config/dan-toy.yaml is a small configuration. A repeated
# run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$save"
python "$recipe/../launch.py" train "$data" "$recipe/config/dan.yaml" "$@" \
    --save-dir "$save" --log-file "$save/train.log"
replacing "$save/mined.json" python -m fairseq_xl mine-negatives "$save/checkpoint_best.pt" "$data"
