#!/usr/bin/env bash
# torchrun.sh DATA SAVE_DIR CONFIG.yaml [CONFIG.yaml ...] [--flag value ...]: trains in several processes with torchrun.
# PROCESSES: number of processes on this machine (default: one per GPU).
# Several machines: run the same command on each, with NODES=number of machines and HEAD=host:port of the first.
# A repeated run resumes.
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
[ -n "${PROCESSES:-}" ] || python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    refuse "there is no GPU: set PROCESSES=number of processes"
mkdir -p "$save"
exec torchrun "${meeting[@]}" --nproc_per_node "${PROCESSES:-gpu}" "$recipes/launch.py" train "$data" "$@" \
    --save-dir "$save" --log-file "$save/train.log"
