#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT [--config FILE ...] [--flag value ...]: VECO pre-training in two stages (V7). INIT, an
# XLM-R or another pre-trained encoder of the same shape, initializes everything except cross-attention. The first stage
# trains cross-attention only, in SAVE_DIR/cross-attention; the second stage trains all parameters, in SAVE_DIR. With
# INIT "random" there is no first stage (V16). The model has the paper's size; --config recipes/veco/config/toy.yaml
# makes it small. With a FILE NAME.yaml, cross-attention-NAME.yaml of the same folder configures the first stage, if it
# exists, or else config/cross-attention.yaml. DATA may be CORPUS.yaml, a description of raw text, which is binarized
# with fairseq-preprocess in SAVE_DIR. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir init -- "$@"
shift 3
from_text
set -- --config "$recipes/veco/config/pretrain.yaml" "$@"
if [ "$init" != random ]; then
    first=$recipes/veco/config/cross-attention.yaml
    for word; do
        own=$(dirname -- "$word")/cross-attention-$(basename -- "$word")
        [ ! -f "$own" ] || first=$own
    done
    fairseq-train "$data" --user-dir "$package" "$@" --config "$first" --init-from "$init" \
        --save-dir "$save_dir/cross-attention" --log-file "$save_dir/cross-attention/train.log"
    set -- "$@" --init-from "$save_dir/cross-attention/checkpoint_last.pt"
fi
last fairseq-train "$data" --user-dir "$package" "$@" --save-dir "$save_dir" --log-file "$save_dir/train.log"
