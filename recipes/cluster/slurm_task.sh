#!/usr/bin/env bash
# slurm_task.sh COMMAND ...: runs a command with the rank of its SLURM task, as torchrun does.
RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec "$@"
