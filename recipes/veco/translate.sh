#!/usr/bin/env bash
# translate.sh DATA SAVE_DIR CHECKPOINT [CONFIG.yaml ...] -s en -t de [--flag value ...]: translation from one VECO
# checkpoint (V10): all its layers initialize the encoder, its last layers the decoder (--init-decoder-layers first: its
# first layers). CHECKPOINT "random" starts from random weights with the same settings. Without a CONFIG the model has
# the paper's size; config/translate-toy.yaml is small. SAVE_DIR/average.pt is the average of the last ten checkpoints
# of save-interval-updates (V13), of all if there are fewer, or the last checkpoint if there are none. A repeated run
# resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 3 "$@"
data=$1 save=$2 checkpoint=$3
shift 3
start_from "$checkpoint"
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$save"
python "$recipe/../launch.py" train "$data" "$recipe/config/translate.yaml" "$@" \
    ${start[@]+"${start[@]}"} --save-dir "$save" --log-file "$save/train.log"
kept=$(find "$save" -maxdepth 1 -name 'checkpoint_[0-9]*_[0-9]*.pt' | wc -l)
chosen=(--last $((kept < 10 ? kept : 10)) "$save" --updates)
if [ "$kept" -eq 0 ]; then
    echo "veco: $save has no checkpoint of --save-interval-updates to average: average.pt is checkpoint_last.pt" >&2
    chosen=(--inputs "$save/checkpoint_last.pt")
fi
python -m fairseq_xl average "${chosen[@]}" --output "$save/average.pt"
