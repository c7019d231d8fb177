#!/usr/bin/env bash
# run.sh [OUTPUT_DIR]: pre-trains on real text in three languages and fine-tunes en->de from it and from random weights,
# same settings otherwise. Needs the corpus in corpora/lohelp (README.md). Run again, it goes on where it stopped.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=${1:-$root/runs/lohelp}
mkdir -p "$output" && output=$(cd "$output" && pwd)
cd "$root"
XL_EXTRAS=recipes . recipes/environment.sh
[ -f corpora/lohelp/bitext/train.en-de.en ] ||
    { echo "lohelp: corpora/lohelp/bitext/train.en-de.en is not there; recipes/lohelp/README.md says where it comes from" >&2; exit 2; }
python -m preprocess recipes/lohelp/corpus.yaml "$output/data-bin"
bash recipes/xlm/pretrain.sh "$output/data-bin" "$output/pretrain" recipes/lohelp/pretrain.yaml
pretrained=$output/pretrain/checkpoint_best.pt
for model in pretrained random; do
    initialisation=()
    [ $model = random ] || initialisation=(--init-encoder-from "$pretrained" --init-decoder-from "$pretrained")
    bash recipes/xlm/translate.sh "$output/data-bin" "$output/$model" recipes/lohelp/translate.yaml -s en -t de \
        ${initialisation[@]+"${initialisation[@]}"}
    bash recipes/xlm/score.sh "$output/data-bin" "$output/$model/checkpoint_best.pt" "$output/$model" en de \
        corpora/lohelp/bitext/test.en-de.de
done
python -m fairseq_xl.evaluation.bleu --plain corpora/lohelp/bitext/test.en-de.en corpora/lohelp/bitext/test.en-de.de \
    --language de >"$output/copy.json"
python -m fairseq_xl.evaluation.curves --output "$output/pretraining.png" "MLM + TLM=$output/pretrain/train.log"
python -m fairseq_xl.evaluation.curves --output "$output/translation.png" --metric nll_loss \
    "pre-trained=$output/pretrained/train.log" "random=$output/random/train.log"
