#!/usr/bin/env bash
# smoke.sh [--output DIR] [--corpus FOLDER] [--vocabulary N] [--updates N]
#
# All of run.sh in minutes on two cores: English and German only, a tiny vocabulary, few updates. Pre-trains with
# MLM + TLM, translates from it and from random weights, classifies and retrieves, and ends with
#     lohelp BLEU pretrained=<x> random=<y> retrieval=<r> nc=<a> majority=<m>
# BLEU is over the whole test set of en->de (beam 1); retrieval is the accuracy over both directions with the margin
# score; nc is the accuracy over both languages after training on English, and majority what the most frequent label
# would reach. --corpus: the corpus folder (default: corpora/lohelp, fetched if it is not there;
# README.md). --updates: every model is trained for N updates only, to try things out;
# --vocabulary: sub-words, 4000 by default.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/lohelp-smoke corpus=$root/corpora/lohelp
languages=en,de updates=() vocabulary=4000
. "$root/recipes/lohelp/stages.sh"
options lohelp '--output --corpus --vocabulary --updates' "$@"
cd "$root"
configs=recipes/lohelp/smoke
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

prepare
pretrain mlm-tlm
retrieve mlm-tlm en,de
classify mlm-tlm nc en,de 1
for model in mlm-tlm random; do
    translate $model en de --beam 1
done
python - "$output" <<'PYTHON'
import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])


def read(name):
    return json.loads((folder / name).read_text())


nc = read("mlm-tlm/nc-1/scores.json")
print(
    f"lohelp BLEU pretrained={read('mlm-tlm/en-de/bleu.json')['sacrebleu']['score']:.2f} "
    f"random={read('random/en-de/bleu.json')['sacrebleu']['score']:.2f} "
    f"retrieval={read('mlm-tlm/retrieval/scores.json')['average']['margin']:.2f} "
    f"nc={nc['accuracy']:.2f} majority={nc['majority']:.2f}"
)
PYTHON
