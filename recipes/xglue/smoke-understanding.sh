#!/usr/bin/env bash
# smoke-understanding.sh [--output DIR] [--updates N]
#
# XGLUE's nine understanding tasks in minutes on two cores, on a small synthetic release in XGLUE's formats: reader,
# pre-training, fine-tuning in English, predictions, submission and scores (smoke-understanding.yaml lists the
# commands). Ends with
#     xglue tasks=9 NER=<a> … QAM=<i> avg=<average>
# DIR/scores/table.md has the table, DIR/page/page.html the scores of each language in tables and charts. The scores say
# nothing about real text: sentences are made of twelve words. Paths are relative to the repository. A repeated
# run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/xglue/smoke-understanding.yaml --jobs 2 "$@"
