#!/usr/bin/env bash
#SBATCH --job-name=fairseq_xl
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
# sbatch [...] recipes/cluster/slurm.sh DATA SAVE_DIR CONFIG.yaml [CONFIG.yaml ...] [--flag value ...]: trains with one
# process per SLURM task, for instance --nodes 2 --ntasks-per-node 8 --gpus-per-node 8. Without GPUs omit
# --gpus-per-node. Submit it from the repository's folder with the environment active. Two minutes before the time limit
# SLURM sends SIGTERM to every process; the run saves and the job ends with 0. Submit the job again to resume.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/../..}"
. recipes/common.sh
arguments 3 "$@"
[ -n "${SLURM_SUBMIT_DIR:-}" ] || refuse "start it with sbatch"
data=$1 save=$2
shift 2
mkdir -p "$save"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${nodes%%$'\n'*} MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))} WORLD_SIZE=$SLURM_NTASKS
# shellcheck disable=SC2016  # each task has its own rank
exec srun --kill-on-bad-exit=1 bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID && exec "$@"' task \
    python recipes/launch.py train "$data" "$@" --save-dir "$save" --log-file "$save/train.log"
