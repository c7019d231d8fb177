#!/usr/bin/env bash
# translate.sh DATA SAVE_DIR CHECKPOINT [CONFIG.yaml ...] -s en -t de [--flag value ...]: translation from one VECO
# checkpoint (V10): all its layers are the encoder, its last ones the decoder (--init-decoder-layers first: its first
# ones). CHECKPOINT "random" starts from nothing with the same settings. At paper size without a CONFIG;
# config/translate-toy.yaml makes it small. The checkpoints that
# keep-interval-updates keeps, 10 at paper size, are averaged into SAVE_DIR/average.pt (V13). Run again, it goes on where it stopped.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage="usage: translate.sh DATA SAVE_DIR CHECKPOINT [CONFIG.yaml ...] -s en -t de [--flag value ...]"
data=${1:?$usage} save=${2:?$usage} checkpoint=${3:?$usage}
shift 3
initialisation=(--init-encoder-from "$checkpoint" --init-decoder-from "$checkpoint")
[ "$checkpoint" != random ] || initialisation=()
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$save"
python "$recipe/../launch.py" train "$data" "$recipe/config/translate.yaml" "$@" \
    ${initialisation[@]+"${initialisation[@]}"} --save-dir "$save" --log-file "$save/train.log"
kept=$(find "$save" -maxdepth 1 -name 'checkpoint_*_*.pt' | wc -l)  # as many as keep-interval-updates says
python -m fairseq_xl.checkpoints.averaging --last "$kept" "$save" --updates --output "$save/average.pt"
