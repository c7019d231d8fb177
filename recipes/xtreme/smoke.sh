#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# XTREME's nine tasks in minutes on two cores, on a small synthetic release in XTREME's formats: reader, pre-training,
# fine-tuning in English, retrieval, predictions, submission and scores (smoke.yaml lists the commands). Ends with
#     xtreme tasks=9 xnli=<a> … tatoeba=<i> avg=<average>
# DIR/scores/table.md has the table, DIR/page/page.html the scores of each language in tables and charts. The scores say
# nothing about real text: sentences are made of twelve words. Paths are relative to the repository. A repeated
# run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/xtreme/smoke.yaml --jobs 2 "$@"
