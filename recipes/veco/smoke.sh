#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# VECO in minutes on two cores, on English and German of the bundled synthetic sample: MLM in XLM-R's place, the two
# stages of VECO from it, translation from all layers with the last two as the decoder, and from random weights with the
# same settings, retrieval from a middle layer; ends with
#     veco BLEU=<x> random BLEU=<y> retrieval=<z>
# where retrieval is the accuracy over both directions with the margin score. Hypotheses, references and logs stay in
# DIR (default: runs/veco-smoke). Run again, it goes on where it stopped. --updates N: every model is trained for N
# updates.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/veco-smoke updates=()
. "$root/recipes/lohelp/stages.sh"
options veco '--output --updates' "$@"
[ ${#updates[@]} -eq 0 ] || updates+=(--save-interval-updates "${updates[1]}")
cd "$root"
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

texts=(--langs en,de --pairs en-de)
data=$output/data-bin config=recipes/veco/config sample=corpora/sample
sample_corpus
same_settings "$output" "$(cat $config/*.yaml) ${updates[*]-}"
logged "$output/data.log" python -m preprocess recipes/sample.yaml "$data"
mkdir -p "$output/mlm"
logged "$output/mlm.log" python recipes/launch.py train "$data" $config/pretrain.yaml $config/toy.yaml \
    $config/mlm-toy.yaml --save-dir "$output/mlm" --log-file "$output/mlm/train.log" "${texts[@]}" \
    ${updates[@]+"${updates[@]}"}
logged "$output/veco.log" bash recipes/veco/pretrain.sh "$data" "$output/veco" "$output/mlm/checkpoint_last.pt" \
    $config/toy.yaml "${texts[@]}" ${updates[@]+"${updates[@]}"}
cp $sample/bitext/test.en-de.en "$output/source.en" && cp $sample/bitext/test.en-de.de "$output/reference.de"
for model in last random; do
    checkpoint=$output/veco/checkpoint_last.pt
    [ $model = last ] || checkpoint=random
    logged "$output/$model.log" bash recipes/veco/translate.sh "$data" "$output/$model" "$checkpoint" \
        $config/translate-toy.yaml -s en -t de ${updates[@]+"${updates[@]}"}
    bash recipes/xlm/score.sh "$data" "$output/$model/average.pt" "$output/$model" en de "$output/reference.de" \
        >/dev/null
done
echo "--- $output/retrieval.json" >&2
python -m fairseq_xl retrieve "$output/veco/checkpoint_last.pt" "$data" --dev en-de=$sample/bitext/valid.en-de \
    --test en-de=$sample/bitext/test.en-de >"$output/retrieval.json" 2>"$output/retrieval.log" ||
    { what_failed "$output/retrieval.log"; exit 1; }
score() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]][sys.argv[3]])' "$@"; }
echo "veco BLEU=$(score "$output/last/bleu.json" sacrebleu score)" \
    "random BLEU=$(score "$output/random/bleu.json" sacrebleu score)" \
    "retrieval=$(score "$output/retrieval.json" average margin)"
