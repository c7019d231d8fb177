#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# The chain of every claim of claims.yaml at toy size, in minutes on two cores: 10 updates of each model (N: below 15),
# one seed, English and German of the bundled synthetic sample (smoke.yaml). Ends with
#     evidence claims=8 run=8
# run counts the claims with all steps finished and their tests in the report. The scores mean nothing. Paths are
# relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/evidence/smoke.yaml --jobs 2 --updates 10 "$@"
