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
while [ $# -gt 0 ]; do
    case $1 in
        --output) output=${2:?--output needs a folder}; shift 2 ;;
        --corpus) corpus=$(cd "${2:?--corpus needs a folder}" && pwd); shift 2 ;;
        --langs) languages=${2:?--langs needs languages}; shift 2 ;;
        --targets) targets=${2:?--targets needs languages}; shift 2 ;;
        --models) models=${2:?--models needs names}; shift 2 ;;
        --stages) stages=${2:?--stages needs names}; shift 2 ;;
        --seeds) seeds=${2:?--seeds needs numbers}; shift 2 ;;
        --vocabulary) vocabulary=${2:?--vocabulary needs a number}; shift 2 ;;
        --updates) updates=(--max-update "${2:?--updates needs a number}"); shift 2 ;;
        -h | --help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
        *) echo "lohelp: unknown argument $1 (run.sh --help)" >&2; exit 2 ;;
    esac
done
mkdir -p "$output" && output=$(cd "$output" && pwd)
cd "$root"
configs=recipes/lohelp
. recipes/lohelp/stages.sh
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

chosen() { case ",$stages," in *",$1,"*) ;; *) return 1 ;; esac; }
if chosen data; then
    fetch_corpus "$languages"
    corpus_description "$languages" "$vocabulary" >"$output/corpus.yaml"
    python -m preprocess "$output/corpus.yaml" "$output/data-bin"
fi
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
    python recipes/lohelp/report.py "$output" --models "$models" --langs "$languages" --seeds "$seeds" --targets "$targets"
fi
