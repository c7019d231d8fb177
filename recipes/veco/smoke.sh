#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# VECO on the bundled synthetic sample in minutes on two cores: pre-training, translation and retrieval (smoke.yaml
# lists the commands). Ends with
#     veco BLEU=<x> random BLEU=<y> retrieval=<z>
# BLEU is over the test set of en-de. retrieval is the accuracy over both directions with the margin score. Hypotheses,
# scores and logs stay in DIR (default: runs/veco-smoke). Paths are relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/veco/smoke.yaml "$@"
