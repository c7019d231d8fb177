#!/usr/bin/env bash
#SBATCH --job-name=fairseq_xl
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
# sbatch [...] recipes/cluster/slurm.sh RECIPE.sh ARGUMENTS ...: runs a training recipe with one process per SLURM task,
# for instance --nodes 2 --ntasks-per-node 8 --gpus-per-node 8. Without GPUs omit --gpus-per-node. Submit it from the
# repository's folder with the environment active. Two minutes before the time limit SLURM sends SIGTERM to every
# process; the run saves, and what follows the training in the recipe does not run. Submit the job again to resume.
set -euo pipefail
[ $# -gt 0 ] && [ -n "${SLURM_SUBMIT_DIR:-}" ] || { echo "usage: sbatch [...] $0 RECIPE.sh ARGUMENTS ..." >&2; exit 2; }
cd "$SLURM_SUBMIT_DIR"
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${nodes%%$'\n'*} WORLD_SIZE=$SLURM_NTASKS
export MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}
exec bash "$@" --launch 'srun --kill-on-bad-exit=1 bash recipes/cluster/slurm_task.sh'
