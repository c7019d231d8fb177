#!/usr/bin/env bash
# run.sh [--output DIR] [--corpus FOLDER] [--langs L,L] [--models M,M] [--stages S,S] [--seeds N,N] [--vocabulary N]
#        [--start CHECKPOINT] [--updates N]
#
# What xDAE and xFNP bring to generation on real text (../lohelp/README.md): titles of help pages, learnt from random
# weights, XLM in encoder and decoder, xDAE that went on from that XLM, and xFNP, at equal updates; trained on the first
# language alone and on all, written in every language. xDAE and xFNP are pre-trained on as many tokens, and each undoes
# its noise in text that it was not trained on. The XLM is a short one of its own, or CHECKPOINT: MLM + TLM of the same
# dictionary, as ../lohelp/run.sh leaves in runs/lohelp/mlm-tlm. Tables, curves, outputs beside source and reference.
# Hours on two cores. Run again, it goes on where it stopped. Models: random xlm xdae xfnp; stages: data pretrain denoise
# finetune report; --updates: every model is trained for N updates only, to try things out; --vocabulary: sub-words, 8000
# by default.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
languages=en,de,fr,ru,zh start=
output=$root/runs/xglue corpus=$root/corpora/lohelp
models=random,xlm,xdae,xfnp
stages=data,pretrain,denoise,finetune,report seeds=1,2,3
updates=() vocabulary=8000
. "$root/recipes/lohelp/stages.sh"
options xglue '--output --corpus --langs --models --stages --seeds --vocabulary --start --updates' "$@"
cd "$root"
recipe=recipes/xglue configs=recipes/xglue/lohelp
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh
data=$output/data-bin

# The XLM that encoder and decoder begin with.
pretrain_xlm() {
    if [ -n "$start" ]; then
        same_settings "$output/xlm" "$(settings_of "$start")"
        cp "$start" "$output/xlm/checkpoint_last.pt"
        return
    fi
    same_settings "$output/xlm" "$(settings_of recipes/xlm/config/pretrain.yaml recipes/lohelp/pretrain.yaml \
        "$data/dict.txt") ${updates[*]-}"
    doing="pre-training xlm" logged "$output/xlm/out.log" bash recipes/xlm/pretrain.sh "$data" "$output/xlm" \
        recipes/lohelp/pretrain.yaml --objectives mlm,tlm --max-update 800 ${updates[@]+"${updates[@]}"}
}

# pretrain MODEL INIT
pretrain() {
    local values=("$recipe/config/$1.yaml" "$recipe/config/$1-toy.yaml" "$configs/$1.yaml")
    same_settings "$output/$1" "$(settings_of "${values[@]}" "$2" "$data/dict.txt") ${updates[*]-}"
    doing="pre-training $1" logged "$output/$1/out.log" bash $recipe/pretrain.sh "$data" "$output/$1" "$2" \
        "${values[@]}" ${updates[@]+"${updates[@]}"}
}

# fine_tune MODEL MODE SEED
fine_tune() {
    local save=$output/$1/ntg-$2-$3 weights form=xl_xdae_tiny
    weights=$(pretrained "$1")
    [ "$1" != xfnp ] || form=xl_xfnp_tiny
    doing="titles from $1, $2, seed $3" logged "$save/out.log" bash $recipe/finetune-generation.sh "$2" "$data" "$save" \
        "$corpus/tasks/ntg" "$languages" "${weights:-random}" $recipe/config/generation-toy.yaml $configs/titles.yaml \
        --arch $form --seed "$3" ${updates[@]+"${updates[@]}"}
}

wanted() { case ",$models," in *",$1,"*) ;; *) return 1 ;; esac; }

! chosen data || prepare
if chosen pretrain; then
    ! { wanted xlm || wanted xdae; } || pretrain_xlm
    ! wanted xdae || pretrain xdae "$output/xlm/checkpoint_last.pt"
    ! wanted xfnp || pretrain xfnp random
fi
if chosen denoise; then
    for model in xdae xfnp; do
        ! wanted $model || doing="denoising with $model" logged "$output/$model/denoise.log" bash $recipe/denoise.sh \
            $model "$data" "$(pretrained $model)" "$output/$model/denoise" "$corpus/mono" "$languages" \
            --gen-subset valid
    done
fi
if chosen finetune; then
    for seed in ${seeds//,/ }; do
        for model in ${models//,/ }; do
            fine_tune "$model" pivot "$seed"
            fine_tune "$model" multi-language "$seed"
        done
    done
fi
if chosen report; then
    for mode in pivot multi-language; do
        curves "ntg-$mode" ppl "ntg-$mode-${seeds%%,*}/train.log"
    done
    python -m recipes.xglue.report "$output" --models "$models" --langs "$languages" --seeds "$seeds" \
        --titles "$corpus/tasks/ntg"
fi
