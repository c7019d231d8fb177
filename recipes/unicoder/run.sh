#!/usr/bin/env bash
# run.sh [--output DIR] [--corpus FOLDER] [--langs L,L] [--models M,M] [--stages S,S] [--seeds N,N] [--vocabulary N]
#        [--start CHECKPOINT] [--pretraining-seed N] [--updates N]
#
# What each of Unicoder's tasks adds (U11), on real text in five languages (../lohelp/README.md): from one XLM, XLM
# again, Unicoder, and Unicoder without each of its three tasks go on for as many tokens. The first XLM is a short one of
# its own, or CHECKPOINT: MLM + TLM of the same dictionary, as ../lohelp/run.sh leaves in runs/lohelp/mlm-tlm. Zero-shot
# and multi-language classification (nc, qam), tables, a picture. Hours on two cores. Run again, it goes on where it
# stopped. Models: random start xlm unicoder without-word_recovery without-paraphrase without-cross_lingual_mlm; stages:
# data mine pretrain classify report; --updates: every model is trained for N updates only, to try things out;
# --vocabulary: sub-words, 8000 by default.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
languages=en,de,fr,ru,zh start=
output=$root/runs/unicoder corpus=$root/corpora/lohelp
models=random,xlm,unicoder,without-word_recovery,without-paraphrase,without-cross_lingual_mlm
stages=data,mine,pretrain,classify,report seeds=1,2,3
updates=() seeded=() vocabulary=8000 more_models=start
. "$root/recipes/lohelp/stages.sh"
options unicoder '--output --corpus --langs --models --stages --seeds --pretraining-seed --vocabulary --start --updates' "$@"
cd "$root"
configs=recipes/unicoder/lohelp
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh

# The tasks of a model: XLM's two, Unicoder's five, or those without one.
tasks_of() {
    local five=mlm,tlm,word_recovery,paraphrase,cross_lingual_mlm
    case $1 in
        start | xlm) echo mlm,tlm ;;
        unicoder) echo $five ;;
        without-*) echo ",$five," | sed "s/,${1#without-},/,/; s/^,//; s/,$//" ;;
    esac
}

# share TASK NUMBER: `batch_tokens` of one of NUMBER tasks, so that the encoder reads 1/NUMBER of about 5,100 tokens an
# update. That limit counts padding, the longer of a translation and its negative, and both sides for word recovery,
# which reads one; the per cent were measured on this corpus. What each model read is in report.md.
share() {
    local percent=100
    case $1 in
        tlm) percent=106 ;;
        word_recovery) percent=210 ;;
        paraphrase) percent=108 ;;
        cross_lingual_mlm) percent=104 ;;
    esac
    echo $((5120 * percent / 100 / $2))
}

# pretrain MODEL INIT [--flag value ...]: all models read as many tokens in an update, in equal parts for their tasks.
pretrain() {
    local model=$1 init=$2 task options=() names reads=(); shift 2
    set -- "$@" ${seeded[@]+"${seeded[@]}"}
    names=$(tasks_of "$model")
    names=(${names//,/ })
    for task in "${names[@]}"; do
        options+=("$task.length=128 $task.mixed=true $task.alpha=0 $task.batch_tokens=$(share "$task" ${#names[@]})")
        [ "$task" != paraphrase ] || reads=("$output/dan/mined.json")
    done
    same_settings "$output/$model" "$(settings_of recipes/unicoder/config/{pretrain,toy}.yaml $configs/pretrain.yaml \
        "$init" "$output/data-bin/dict.txt" ${reads[@]+"${reads[@]}"} "${options[@]}" "$@") ${updates[*]-}"
    doing="pre-training $model" logged "$output/$model/out.log" bash recipes/unicoder/pretrain.sh "$output/data-bin" \
        "$output/$model" "$init" recipes/unicoder/config/toy.yaml $configs/pretrain.yaml "$@" \
        --objectives "$(tasks_of "$model")" --objective-options "${options[*]}" --update-freq ${#names[@]} \
        ${updates[@]+"${updates[@]}"}
}

# fine_tune MODEL TASK MODE SEED
fine_tune() {
    local save=$output/$1/$2-$3-$4 weights
    weights=$(pretrained "$1")
    doing="$2 from $1, $3, seed $4" logged "$save/out.log" bash recipes/unicoder/finetune.sh "$3" "$output/data-bin" \
        "$save" "$corpus/tasks/$2" "$languages" "${weights:-random}" recipes/unicoder/config/classify-toy.yaml \
        "$configs/classify-$2.yaml" --seed "$4" ${updates[@]+"${updates[@]}"}
}

! chosen data || prepare
if chosen mine; then
    same_settings "$output/dan" "$(settings_of recipes/unicoder/config/{dan,dan-toy}.yaml $configs/dan.yaml \
        "$output/data-bin/dict.txt") ${updates[*]-}"
    logged "$output/dan/out.log" bash recipes/unicoder/mine.sh "$output/data-bin" "$output/dan" \
        recipes/unicoder/config/dan-toy.yaml $configs/dan.yaml ${updates[@]+"${updates[@]}"}
fi
if chosen pretrain; then
    if [ -n "$start" ]; then
        same_settings "$output/start" "$(settings_of "$start")"
        cp "$start" "$output/start/checkpoint_last.pt"
    else
        pretrain start random --max-update 800
    fi
    for model in ${models//,/ }; do
        case $model in random | start) ;; *) pretrain "$model" "$output/start/checkpoint_last.pt" ;; esac
    done
fi
if chosen classify; then
    for seed in ${seeds//,/ }; do
        for task in nc qam; do
            for model in ${models//,/ }; do
                for mode in cross-lingual multi-language; do
                    fine_tune "$model" $task $mode "$seed"
                done
            done
        done
    done
fi
if chosen report; then
    curves pretraining mlm_ppl train.log  # of the task that all of them have
    python -m recipes.lohelp.report "$output" --models "$models" --langs "$languages" --seeds "$seeds" \
        --modes cross-lingual,multi-language --against unicoder --corpus "$corpus"
fi
