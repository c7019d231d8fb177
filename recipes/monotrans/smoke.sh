#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# MonoTrans in minutes on two cores, on the bundled synthetic sample (smoke.yaml lists the commands). Ends with
#     monotrans zero-shot=<a> majority=<m>
# Both are averages over German and French, languages without any labeled example; majority is the accuracy of the most
# frequent label. Paths are relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/monotrans/smoke.yaml "$@"
