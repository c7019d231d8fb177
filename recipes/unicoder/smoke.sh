#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# Unicoder on the bundled synthetic sample in minutes on two cores: mining, pre-training and fine-tuning (smoke.yaml
# lists the commands). Ends with
#     unicoder zero-shot=<a> multi-language=<b> majority=<m>
# which are averages over the four languages: accuracy after fine-tuning on English alone, after fine-tuning on all
# languages, and the share of the most frequent label. Logs, predictions and scores stay in DIR (default: runs/unicoder-
# smoke). Paths are relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/unicoder/smoke.yaml "$@"
