#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: MonoTrans, step 1: a body and the language module of
# the first language (M1). DATA is text of that language alone, or of several for a joint model (M8). At paper size
# without a CONFIG; config/toy.yaml makes it small. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 2 "$@"
data=$1 save=$2
shift 2
run_training "$data" "$save" "$recipe/config/pretrain.yaml" "$@"
