#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT [--config FILE ...] [--flag value ...]: Unicoder pre-training with its five tasks
# (U1-U6). INIT is an XLM checkpoint, of this package or published, or "random". Run mine.sh first; if it was given
# CORPUS.yaml, raw text, DATA is the data-bin of its SAVE_DIR. The model has the paper's size; --config
# recipes/unicoder/config/toy.yaml makes it small, config/xglue.yaml is Unicoder for XGLUE, which continues XLM-R and
# needs no negatives: DATA may then be CORPUS.yaml itself. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir init -- "$@"
shift 3
from_text
[ "$init" = random ] || set -- "$@" --init-from "$init"
last fairseq-train "$data" --user-dir "$package" --config "$recipes/unicoder/config/pretrain.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
