#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: pre-trains an XLM and writes the log to SAVE_DIR.
# Without CONFIG the model has the paper's size; config/pretrain-toy.yaml is small. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
run_training "$data" "$save" "$recipe/config/pretrain.yaml" "$@"
