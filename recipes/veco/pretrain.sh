#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT [CONFIG.yaml ...] [--flag value ...]: VECO pre-training in two stages (V7). INIT, an
# XLM-R or another pre-trained encoder of the same shape, initializes everything except cross-attention. The first stage
# trains cross-attention only, in SAVE_DIR/cross-attention; the second stage trains all parameters, in SAVE_DIR. With
# INIT "random" there is no first stage (V16). Without a CONFIG the model has the paper's size; config/toy.yaml is
# small. The first stage of a CONFIG NAME.yaml is configured by cross-attention-NAME.yaml in the same folder, if it
# exists, or else by config/cross-attention.yaml. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 3 "$@"
data=$1 save=$2 init=$3 configs=("$recipe/config/pretrain.yaml") first=$recipe/config/cross-attention.yaml
shift 3
while [[ ${1:-} = *.yaml ]]; do
    own=$(dirname "$1")/cross-attention-$(basename "$1")
    [ ! -f "$own" ] || first=$own
    configs+=("$1")
    shift
done
[ "$init" != random ] || run_training "$data" "$save" "${configs[@]}" "$@"
mkdir -p "$save/cross-attention"
python "$recipe/../launch.py" train "$data" "${configs[@]}" "$first" --init-from "$init" "$@" \
    --save-dir "$save/cross-attention" --log-file "$save/cross-attention/train.log"
python "$recipe/../launch.py" train "$data" "${configs[@]}" --init-from "$save/cross-attention/checkpoint_last.pt" \
    "$@" --save-dir "$save" --log-file "$save/train.log"
