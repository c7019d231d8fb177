#!/usr/bin/env bash
# unsupervised.sh DATA SAVE_DIR [--langs en,de] [--config FILE ...] [--flag value ...]: trains translation between
# languages without parallel text (X11), in all directions between them (default: all languages of DATA). --init-from,
# or --init-embeddings-from, sets pre-trained weights. The model has the paper's size; --config
# recipes/xlm/config/unsupervised-toy.yaml makes it small. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir -- "$@"
shift 2
last fairseq-train "$data" --user-dir "$package" --config "$recipes/xlm/config/unsupervised.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
