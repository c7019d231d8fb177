#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR [--config FILE ...] [--flag value ...]: MonoTrans, step 1: a body and the language module of
# the first language (M1). DATA is text of that language alone, or of several for a joint model (M8). The model has the
# paper's size; --config recipes/monotrans/config/toy.yaml makes it small. DATA may be CORPUS.yaml, a description of raw
# text, which is binarized with fairseq-preprocess in SAVE_DIR. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir -- "$@"
shift 2
from_text
last fairseq-train "$data" --user-dir "$package" --config "$recipes/monotrans/config/pretrain.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
