#!/usr/bin/env bash
# Prepares the environment and runs the tests; arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
XL_EXTRAS=tests . recipes/environment.sh
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"  # the tests' tensors are small: threads would only wait for each other
exec python -m pytest -q --durations=15 "$@" </dev/null
