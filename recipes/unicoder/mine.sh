#!/usr/bin/env bash
# mine.sh DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: hard negatives for paraphrase classification (U5).
# Trains the deep averaging network on random negatives, in SAVE_DIR, and writes what it finds beside the sentence
# pairs of DATA, those that it was trained on; what was found, in numbers, is in SAVE_DIR/mined.json. Flags are those of
# the training, whose paraphrase_similarity.length (128) is the length of the negatives too;
# `fairseq-xl mine-negatives SAVE_DIR/checkpoint_best.pt DATA` has the miner's. config/dan-toy.yaml makes it small.
# Run again, it goes on where it stopped.
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
