#!/usr/bin/env bash
# smoke-generation.sh [--output DIR] [--updates N]
#
# xDAE and xFNP in minutes on two cores, on English and German of the bundled synthetic sample: pre-training, denoising
# and titles (smoke.yaml lists the commands). Ends with
#     denoise BLEU=<d> copy=<e>
#     ntg BLEU xdae=<a> xfnp=<b> random=<c>
# All are cased BLEU, averages over the two languages; copy is the score of the corrupted text without its <mask>. Paths
# are relative to the repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/xglue/smoke.yaml "$@"
