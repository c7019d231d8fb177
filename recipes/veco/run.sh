#!/usr/bin/env bash
# run.sh [--output DIR] [--corpus FOLDER] [--langs L,L] [--targets L,L] [--stages S,S] [--seeds N,N] [--vocabulary N]
#        [--updates N]
#
# VECO and XLM on real text in English, German, French, Russian and Chinese (../lohelp/README.md): both go on from one
# MLM for as many tokens. en->de and en->fr from random weights, from XLM's last layers, from VECO's first and last
# layers; zero-shot classification and retrieval in all languages; tables. Hours on two cores. Run again, it goes on
# where it stopped. Stages: data pretrain translate classify retrieve report; --updates: every model is trained for N
# updates only, to try things out; --vocabulary: sub-words, 8000 by default.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
languages=en,de,fr,ru,zh targets=de,fr
output=$root/runs/veco corpus=$root/corpora/lohelp
stages=data,pretrain,translate,classify,retrieve,report seeds=1,2,3
updates=() vocabulary=8000
. "$root/recipes/lohelp/stages.sh"
options veco '--output --corpus --langs --targets --stages --seeds --vocabulary --updates' "$@"
cd "$root"
configs=recipes/veco/lohelp
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

# pretrain MODEL SCRIPT ARGUMENTS: what follows DATA and SAVE_DIR in the command line of the script
pretrain() {
    local model=$1 script=$2; shift 2
    same_settings "$output/$model" \
        "$(settings_of "recipes/${script%/*}/config/pretrain.yaml" $configs/cross-attention-*.yaml "$@") ${updates[*]-}"
    doing="pre-training $model" logged "$output/$model/out.log" bash "recipes/$script" "$output/data-bin" \
        "$output/$model" "$@" ${updates[@]+"${updates[@]}"}
}

! chosen data || prepare
if chosen pretrain; then
    start=$output/mlm/checkpoint_last.pt
    pretrain mlm xlm/pretrain.sh $configs/mlm.yaml
    pretrain xlm xlm/pretrain.sh $configs/mlm.yaml $configs/xlm.yaml --init-from "$start"
    pretrain veco veco/pretrain.sh "$start" $configs/pretrain.yaml
fi
for model in random xlm veco; do
    ! chosen retrieve || retrieve $model "$languages"
    if chosen classify; then
        for seed in ${seeds//,/ }; do
            classify $model nc "$languages" "$seed"
            classify $model qam "$languages" "$seed"
        done
    fi
done
if chosen translate; then
    for target in ${targets//,/ }; do
        for model in random xlm:last veco:first veco:last; do
            translate $model en "$target"
        done
    done
fi
if chosen report; then
    models=random,xlm-last,veco-first,veco-last
    for target in ${targets//,/ }; do
        copy_baseline en "$target"
        curves "en-$target" nll_loss "en-$target/train.log"
    done
    models=mlm,xlm,veco
    curves pretraining ppl train.log
    python -m recipes.lohelp.report "$output" --models random,xlm,veco --langs "$languages" --seeds "$seeds" \
        --translations random,xlm-last,veco-first,veco-last --targets "$targets" --corpus "$corpus"
fi
