#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# Unicoder in minutes on two cores, on the bundled synthetic sample in four languages: trains the network that mines
# hard negatives, mines, pre-trains with all five tasks, fine-tunes a classifier of topics from it in English alone
# and in all languages, and ends with
#     unicoder zero-shot=<a> multi-language=<b> majority=<m>
# where a, b and m are averages over the four languages, m that of always giving the most frequent label. Logs,
# predictions and scores stay in DIR (default: runs/unicoder-smoke). Run again, it goes on where it stopped. --updates
# N: every model is trained for N updates, to try things out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/unicoder-smoke updates=()
. "$root/recipes/lohelp/stages.sh"
options unicoder '--output --updates' "$@"
cd "$root"
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

data=$output/data-bin recipe=recipes/unicoder sample=corpora/sample languages=en,de,es,fr
sample_corpus
same_settings "$output" \
    "$(cat $recipe/config/*.yaml recipes/xlm/config/classify.yaml recipes/sample.yaml) ${updates[*]-}"
logged "$output/data.log" python -m preprocess recipes/sample.yaml "$data"
logged "$output/mine.log" bash $recipe/mine.sh "$data" "$output/dan" $recipe/config/dan-toy.yaml \
    ${updates[@]+"${updates[@]}"}
logged "$output/pretrain.log" bash $recipe/pretrain.sh "$data" "$output/unicoder" random $recipe/config/toy.yaml \
    ${updates[@]+"${updates[@]}"}
for mode in cross-lingual multi-language; do
    logged "$output/$mode.log" bash $recipe/finetune.sh $mode "$data" "$output/$mode" $sample/tasks/nc $languages \
        "$output/unicoder/checkpoint_last.pt" $recipe/config/classify-toy.yaml ${updates[@]+"${updates[@]}"}
done
score() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$output/$1/scores.json" "$2"; }
echo "unicoder zero-shot=$(score cross-lingual accuracy) multi-language=$(score multi-language accuracy)" \
    "majority=$(score cross-lingual majority)"
