#!/usr/bin/env bash
# translate.sh DATA SAVE_DIR -s en -t de [--config FILE ...] [--flag value ...]: trains a translation model.
# --init-from, or --init-embeddings-from, sets pre-trained weights (X11).
# --lang-pairs en-de,de-en trains both directions in one model (X13).
# The model has the paper's size; --config recipes/xlm/config/translate-toy.yaml makes it small. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir -- "$@"
shift 2
last fairseq-train "$data" --user-dir "$package" --config "$recipes/xlm/config/translate.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
