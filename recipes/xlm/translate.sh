#!/usr/bin/env bash
# translate.sh DATA SAVE_DIR [CONFIG.yaml ...] -s en -t de [--flag value ...]: trains a translation model.
# Initialise it with --init-encoder-from and --init-decoder-from, or --init-embeddings-from (X11); both directions in
# one model with --lang-pairs en-de,de-en (X13). At paper size without a CONFIG; config/translate-toy.yaml makes it small.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
run_training "$data" "$save" "$recipe/config/translate.yaml" "$@"
