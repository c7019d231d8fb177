#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# MonoTrans in minutes on two cores, on the bundled synthetic sample: a body and a language module pre-trained on
# English, language modules of German and French learned over it, a classifier of the forms of sentences fine-tuned on
# English with noised embeddings, and tested in German and French, of which it has seen no label; ends with monotrans
# zero-shot=<a> majority=<m> where a and m are averages over the two, m that of always giving the most frequent label.
# Each language has sub-words and a dictionary of its own. Logs, predictions and scores stay in DIR (default:
# runs/monotrans-smoke). Run again, it goes on where it stopped. --updates N: every model is trained for N updates, to
# try things out.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/monotrans-smoke updates=()
. "$root/recipes/lohelp/stages.sh"
options monotrans '--output --updates' "$@"
cd "$root"
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

recipe=recipes/monotrans sample=corpora/sample
sample_corpus
same_settings "$output" "$(cat $recipe/config/*.yaml) ${updates[*]-}"
for language in en de fr; do
    cat >"$output/$language.yaml" <<END
languages: [$language]
vocabulary: {model: unigram, size: 1600, normalization: identity}
monolingual:
  $language: {train: '$root/$sample/mono/train.$language', valid: '$root/$sample/mono/valid.$language'}
END
    logged "$output/data-$language.log" python -m preprocess "$output/$language.yaml" "$output/data/$language"
done
step() { logged "$output/$1.log" bash "$recipe/$2.sh" "${@:3}" ${updates[@]+"${updates[@]}"}; }
body=$output/body/checkpoint_last.pt
step body pretrain "$output/data/en" "$output/body" $recipe/config/toy.yaml
for language in de fr; do
    step $language learn-language-module "$output/data/$language" "$output/$language" "$body" $recipe/config/toy.yaml \
        $recipe/config/toy-language-module.yaml
done
step classifier finetune "$output/data/en" "$output/classifier" $sample/tasks/form en "$body" \
    $recipe/config/classify-toy.yaml --embedding-noise 0.075
logged "$output/zero-shot.log" bash $recipe/zero-shot.sh "$output/classifier/checkpoint_best.pt" "$output/zero-shot" \
    $sample/tasks/form "de=$output/data/de:$output/de/language-module.pt" "fr=$output/data/fr:$output/fr/language-module.pt"
score() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$output/zero-shot/scores.json" "$1"; }
echo "monotrans zero-shot=$(score accuracy) majority=$(score majority)"
