#!/usr/bin/env bash
# translate.sh DATA SAVE_DIR [CONFIG.yaml ...] -s en -t de [--flag value ...]: trains a translation model.
# --init-from, or --init-embeddings-from, sets pre-trained weights (X11).
# --lang-pairs en-de,de-en trains both directions in one model (X13).
# Without CONFIG the model has the paper's size; config/translate-toy.yaml is small. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
run_training "$data" "$save" "$recipe/config/translate.yaml" "$@"
