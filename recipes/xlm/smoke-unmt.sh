#!/usr/bin/env bash
# smoke-unmt.sh [--output DIR] [--updates N]
#
# Unsupervised translation on the bundled synthetic sample in minutes on two cores: translation from embeddings that are
# mapped from identical pieces, and from random weights, without parallel text (smoke-unmt.yaml lists the commands).
# Ends with
#     unmt en-de=<a> de-en=<b> random=<c> copy=<d>
# a, b: BLEU from embeddings; c: BLEU of en-de from random weights; d: BLEU of the untranslated source. Hypotheses,
# scores and logs stay in DIR (default: runs/xlm-unmt). Paths are relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
XL_EXTRAS=${XL_EXTRAS:-recipes,embeddings} . recipes/environment.sh
exec python -m recipes.experiment recipes/xlm/smoke-unmt.yaml --jobs 2 "$@"
