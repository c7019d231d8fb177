#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT [CONFIG.yaml ...] [--flag value ...]: VECO pre-training in two stages (V7). Everything
# but cross-attention begins with the weights of INIT: XLM-R's, or those of any pre-trained encoder of the same shape.
# SAVE_DIR/cross-attention trains cross-attention alone, SAVE_DIR everything. At paper size without a CONFIG;
# config/toy.yaml makes it small. A CONFIG called NAME.yaml has its first stage in cross-attention-NAME.yaml, if that is
# there, else in config/cross-attention.yaml. Run again, it goes on where it stopped.
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
mkdir -p "$save/cross-attention"
python "$recipe/../launch.py" train "$data" "${configs[@]}" "$first" --init-from "$init" "$@" \
    --save-dir "$save/cross-attention" --log-file "$save/cross-attention/train.log"
python "$recipe/../launch.py" train "$data" "${configs[@]}" --init-from "$save/cross-attention/checkpoint_last.pt" \
    "$@" --save-dir "$save" --log-file "$save/train.log"
