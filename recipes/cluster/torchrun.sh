#!/usr/bin/env bash
# torchrun.sh DATA SAVE_DIR CONFIG.yaml [CONFIG.yaml ...] [--flag value ...]: trains in several processes with torchrun.
# PROCESSES: how many on this machine; by default one for each of its GPUs.
# Several machines: start the same on each of them, with NODES=how many and HEAD=host:port of the first.
# Run again, it goes on where it stopped.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$recipes/common.sh"
arguments 3 "$@"
data=$1 save=$2
shift 2
if [ "${NODES:-1}" = 1 ]; then
    meeting=(--standalone)
else
    [ -n "${HEAD:-}" ] || refuse "with NODES, name the first machine: HEAD=host:port"
    meeting=(--nnodes "$NODES" --rdzv_backend c10d --rdzv_id "${RUN:-fairseq_xl}" --rdzv_endpoint "$HEAD")
fi
mkdir -p "$save"
exec torchrun "${meeting[@]}" --nproc_per_node "${PROCESSES:-gpu}" "$recipes/launch.py" train "$data" "$@" \
    --save-dir "$save" --log-file "$save/train.log"
