#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N] [corpus=FOLDER] [vocabulary=N]
#
# MLM + TLM on real English and German text in minutes on two cores: translation, classification and retrieval
# (smoke.yaml lists the commands). Ends with
#     lohelp BLEU pretrained=<x> random=<y> retrieval=<r> nc=<a> majority=<m>
# BLEU is over the whole test set of en-de (beam 1). retrieval is the accuracy over both directions with the margin
# score. nc is the accuracy over both languages after training on English, majority that of the most frequent label.
# Paths are relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/lohelp/smoke.yaml "$@"
