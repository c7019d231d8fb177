#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT [CONFIG.yaml ...] [--flag value ...]: Unicoder pre-training with its five tasks
# (U1-U6). INIT is an XLM checkpoint, of this package or published, or "random". Run mine.sh on DATA first. Without a
# CONFIG the model has the paper's size; config/toy.yaml is small, config/xglue.yaml is Unicoder for XGLUE, which
# continues XLM-R. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 3 "$@"
data=$1 save=$2 init=(--init-from "$3")
[ "$3" != random ] || init=()
shift 3
run_training "$data" "$save" "$recipe/config/pretrain.yaml" "$@" ${init[@]+"${init[@]}"}
