#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: XLM pre-training; the log is kept in SAVE_DIR.
# At paper size without a CONFIG; config/pretrain-toy.yaml makes it small. Run again, it goes on where it stopped.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
run_training "$data" "$save" "$recipe/config/pretrain.yaml" "$@"
