#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR [--config FILE ...] [--flag value ...]: pre-trains an XLM and writes the log to SAVE_DIR.
# The model has the paper's size; --config recipes/xlm/config/pretrain-toy.yaml makes it small. DATA may be CORPUS.yaml,
# a description of raw text, which is binarized with fairseq-preprocess in SAVE_DIR. A repeated run resumes. --launch
# 'torchrun --nproc_per_node 8' trains in eight processes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir -- "$@"
shift 2
from_text
last fairseq-train "$data" --user-dir "$package" --config "$recipes/xlm/config/pretrain.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
