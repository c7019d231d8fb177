#!/usr/bin/env bash
# Prepares the environment and runs the tests, in two processes; arguments go to pytest (-n 0: in one process).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
XL_EXTRAS=tests . recipes/environment.sh
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"  # the tests' tensors are small: threads would only wait for each other
unset PYTHONDONTWRITEBYTECODE  # the tests start many processes: each would compile what it imports
exec python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -rs --durations=15 "$@" </dev/null
