#!/usr/bin/env bash
# translate.sh DATA SAVE_DIR CHECKPOINT -s en -t de [--config FILE ...] [--flag value ...]: translation from one VECO
# checkpoint (V10): all its layers initialize the encoder, its last layers the decoder (--init-decoder-layers first: its
# first layers). CHECKPOINT "random" starts from random weights with the same settings. The model has the paper's size;
# --config recipes/veco/config/translate-toy.yaml makes it small. SAVE_DIR/average.pt is the average of the last ten
# checkpoints of save-interval-updates (V13), of all if there are fewer, or the last checkpoint if there are none. A
# repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir checkpoint -- "$@"
shift 3
[ "$checkpoint" = random ] || set -- "$@" --init-from "$checkpoint"
fairseq-train "$data" --user-dir "$package" --config "$recipes/veco/config/translate.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
kept=$(find "$save_dir" -maxdepth 1 -name 'checkpoint_[0-9]*_[0-9]*.pt' | wc -l)
chosen=(--last $((kept < 10 ? kept : 10)) "$save_dir" --updates)
if [ "$kept" -eq 0 ]; then
    echo "veco: $save_dir has no checkpoint of --save-interval-updates to average: average.pt is checkpoint_last.pt" >&2
    chosen=(--inputs "$save_dir/checkpoint_last.pt")
fi
python -m fairseq_xl model average "${chosen[@]}" --output "$save_dir/average.pt"
