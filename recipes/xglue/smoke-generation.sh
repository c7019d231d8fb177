#!/usr/bin/env bash
# smoke-generation.sh [--output DIR] [--updates N]
#
# xDAE and xFNP in minutes on two cores, on English and German of the bundled synthetic sample: pre-trains both from
# random weights, denoises the test set with xDAE, learns to write titles in both languages from xDAE, from xFNP and from
# random weights of xDAE's form, with the same settings, writes the titles of the test set, and ends with
#     denoise BLEU=<d> copy=<e>
#     ntg BLEU xdae=<a> xfnp=<b> random=<c>
# where all are averages over the two languages, and e is what the corrupted text as it is would reach. What was
# written, scores and logs stay in DIR (default: runs/xglue-smoke). Run again, it goes on where it stopped. --updates N:
# every model is trained for N updates, to try things out; text and test sets stay as they are.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/xglue-smoke updates=()
. "$root/recipes/lohelp/stages.sh"
options xglue '--output --updates' "$@"
cd "$root"
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

data=$output/data-bin recipe=recipes/xglue sample=corpora/sample languages=en,de
sample_corpus
same_settings "$output" "$(cat $recipe/config/*.yaml recipes/sample.yaml) ${updates[*]-}"
logged "$output/data.log" python -m preprocess recipes/sample.yaml "$data"
for model in xdae xfnp; do
    logged "$output/$model.log" bash $recipe/pretrain.sh "$data" "$output/$model" random $recipe/config/$model.yaml \
        $recipe/config/$model-toy.yaml --langs $languages ${updates[@]+"${updates[@]}"}
done
GENERATE="--beam 1" logged "$output/denoise.log" bash $recipe/denoise.sh xdae "$data" "$output/xdae/checkpoint_last.pt" \
    "$output/denoise" $sample/mono $languages
for model in xdae xfnp random; do
    start=random form=xl_xdae_tiny
    [ $model = random ] || start=$output/$model/checkpoint_last.pt
    [ $model != xfnp ] || form=xl_xfnp_tiny
    logged "$output/ntg-$model.log" bash $recipe/finetune-generation.sh multi-language "$data" "$output/ntg-$model" \
        $sample/tasks/ntg $languages "$start" $recipe/config/generation-toy.yaml --arch $form \
        ${updates[@]+"${updates[@]}"}
done
bleu() {
    python -c 'import json, sys
found = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    found = found[key]
print(found["average"]["bleu"])' "$output/$@"
}
echo "denoise BLEU=$(bleu denoise/scores.json) copy=$(bleu denoise/scores.json copy)"
echo "ntg BLEU xdae=$(bleu ntg-xdae/scores.json) xfnp=$(bleu ntg-xfnp/scores.json)" \
    "random=$(bleu ntg-random/scores.json)"
