#!/usr/bin/env bash
# run.sh [--output DIR] [--corpus FOLDER] [--langs L,L] [--targets L,L] [--models M,M]
#        [--stages S,S] [--seeds N,N] [--vocabulary N] [--updates N]
#
# The XLM comparison on real text in English, German, French, Russian and Chinese: CLM, MLM and MLM + TLM at one budget
# of about 10 million tokens; en->de and en->fr from each of them and from random weights; zero-shot classification
# (nc, qam: trained on English) and retrieval in all languages; tables and curves. Hours on two cores. Run again, it goes
# on where it stopped. Models: random clm mlm mlm-tlm; stages: data pretrain translate classify retrieve report.
# --corpus: the corpus folder (default: corpora/lohelp, fetched if it is not there; README.md). --updates: every
# model is trained for N updates only, to try things out; --vocabulary: sub-words, 8000 by default.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
languages=en,de,fr,ru,zh targets=de,fr
output=$root/runs/lohelp corpus=$root/corpora/lohelp
models=random,clm,mlm,mlm-tlm stages=data,pretrain,translate,classify,retrieve,report seeds=1,2,3
updates=() vocabulary=8000
. "$root/recipes/lohelp/stages.sh"
options lohelp '--output --corpus --langs --targets --models --stages --seeds --vocabulary --updates' "$@"
cd "$root"
configs=recipes/lohelp
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

! chosen data || prepare
for model in ${models//,/ }; do
    [ "$model" = random ] || ! chosen pretrain || pretrain "$model"
    ! chosen retrieve || retrieve "$model" "$languages"
    if chosen classify; then
        for seed in ${seeds//,/ }; do
            classify "$model" nc "$languages" "$seed"
            classify "$model" qam "$languages" "$seed"
        done
    fi
    for target in ${targets//,/ }; do
        ! chosen translate || translate "$model" en $target
    done
done
if chosen report; then
    for target in ${targets//,/ }; do
        copy_baseline en "$target"
        curves "en-$target" nll_loss "en-$target/train.log"
    done
    curves pretraining ppl train.log
    python -m recipes.lohelp.report "$output" --models "$models" --langs "$languages" --seeds "$seeds" \
        --targets "$targets" --corpus "$corpus"
fi
