#!/usr/bin/env bash
# unsupervised.sh DATA SAVE_DIR [CONFIG.yaml ...] --langs en,de [--flag value ...]: trains translation between languages
# without parallel text (X11). --init-from, or --init-embeddings-from, sets pre-trained weights. Without CONFIG the model
# has the paper's size; config/unsupervised-toy.yaml is small. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
run_training "$data" "$save" "$recipe/config/unsupervised.yaml" "$@"
