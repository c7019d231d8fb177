#!/usr/bin/env bash
# interchange.sh [--output DIR] [--updates N]
#
# Weights from transformers and back, in minutes on two cores: an XLM-R folder of transformers with random weights, VECO
# pre-training from it, its vocabulary cut to two languages, translation, and the translation model as a folder of
# transformers (interchange/chain.yaml lists the commands). Ends with
#     interchange logits=<x> ids=equal
# x is the maximum difference between the logits of transformers and of this package over the test set of en-de; the
# token ids of transformers' tokenizer and of this package are equal. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/interchange/chain.yaml "$@"
