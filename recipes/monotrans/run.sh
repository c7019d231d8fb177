#!/usr/bin/env bash
# run.sh [--output DIR] [--corpus FOLDER] [--langs L,L] [--models M,M] [--stages S,S] [--seeds N,N] [--vocabulary N]
#        [--pretraining-seed N] [--updates N]
#
# What each option of the paper adds (M9), on real text (../lohelp/README.md): a body and a language module of
# English, language modules of German, Spanish and Russian over it; tokens, + positions, + noise, + adapters; beside
# them a joint model of English and each of the others (JointPair), with one vocabulary or with those of both apart.
# Classifiers (nc, qam) are trained on English, the best epoch by English alone; tables, curves. Hours on two cores.
# Run again, it goes on where it stopped. Models: tokens positions noise adapters joint disjoint, and only if they are
# named multi, one model of all languages (JointMulti), and clwe, mapped embeddings (with gensim:
# XL_EXTRAS=recipes,embeddings; SKIPGRAM and START as in clwe.sh). Stages: data body modules finetune report;
# --updates: every model is trained for N updates only, to try things out; --vocabulary: sub-words of each vocabulary,
# 8000 by default; --pretraining-seed: that of all pre-training but skip-gram's, by default 1; --seeds: those of
# classifiers.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
languages=en,de,es,ru
output=$root/runs/monotrans corpus=$root/corpora/lohelp
models=tokens,positions,noise,adapters,joint,disjoint more_models=multi,clwe
stages=data,body,modules,finetune,report seeds=1,2,3 seeded=(--seed 1) updates=() vocabulary=8000
. "$root/recipes/lohelp/stages.sh"
options monotrans '--output --corpus --langs --models --stages --seeds --vocabulary --pretraining-seed --updates' "$@"
cd "$root"
recipe=recipes/monotrans configs=recipes/monotrans/lohelp data=$output/data
XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh
source=${languages%%,*} targets=${languages#*,}
[ "$targets" != "$languages" ] || refuse "--langs $languages: a first language and others are needed"

wanted() { case ",$models," in *",$1,"*) ;; *) return 1 ;; esac; }

# binarise FOLDER LANGUAGE ...
binarise() {
    local folder=$1 language; shift
    mkdir -p "$output/descriptions"
    {
        printf 'languages: [%s]\n' "$(IFS=,; echo "$*")"
        echo "vocabulary: {model: unigram, size: $vocabulary, alpha: 0.5, normalization: identity}"
        echo "monolingual:"
        for language; do
            echo "  $language: {train: '$corpus/mono/train.$language', valid: '$corpus/mono/valid.$language'}"
        done
    } >"$output/descriptions/$(basename "$folder").yaml"
    logged "$output/data.log" python -m preprocess "$output/descriptions/$(basename "$folder").yaml" "$folder"
}

# pretrain FOLDER DATA CONFIG.yaml ... [--flag value ...]
pretrain() {
    local save=$output/$1 text=$2; shift 2
    set -- "$@" "${seeded[@]}"
    same_settings "$save" "$(settings_of $recipe/config/{pretrain,toy}.yaml "$text/dict.txt" "$@") ${updates[*]-}"
    logged "$save/out.log" bash $recipe/pretrain.sh "$text" "$save" $recipe/config/toy.yaml "$@" \
        ${updates[@]+"${updates[@]}"}
}

# learn BODY MODULES [--flag value ...]: a language module of each target over a body
learn() {
    local body=$output/body/$1 modules=$output/modules/$2 target; shift 2
    set -- "$@" "${seeded[@]}"
    for target in ${targets//,/ }; do
        logged "$modules/$target.log" bash $recipe/learn-language-module.sh "$data/$target" "$modules/$target" \
            "$body/checkpoint_last.pt" $recipe/config/toy.yaml $configs/pretrain.yaml $configs/language-module.yaml "$@" \
            ${updates[@]+"${updates[@]}"}
    done
}

# what fine-tuning depends on: tuned BODY TASK ARGUMENT ...
tuned() {
    local body=$1 task=$2; shift 2
    settings_of recipes/xlm/config/classify.yaml $recipe/config/classify{,-toy}.yaml "$configs/classify-$task.yaml" \
        "$body/checkpoint_last.pt" "$corpus/tasks/$task" "$@" ${updates[@]+"${updates[@]}"}
}

# classify MODEL TASK SEED BODY MODULES [--flag value ...]: with the classifier of the model CLASSIFIER, if that is set
classify() {
    local model=$1 task=$2 seed=$3 body=$output/body/$4 modules=$output/modules/$5 save target classifier tests; shift 5
    save=$output/$model/$task-$seed classifier=$output/${CLASSIFIER:-$model}/$task-$seed tests=("$source=$data/$source")
    for target in ${targets//,/ }; do tests+=("$target=$data/$target:$modules/$target/language-module.pt"); done
    same_settings "$save" "$(tuned "$body" "$task" "$@"; settings_of "$languages" "$modules"/*/language-module.pt)"
    [ ! -s "$save/scores.json" ] || return 0
    [ -n "${CLASSIFIER:-}" ] || doing="$task, $model, seed $seed" logged "$save/out.log" bash $recipe/finetune.sh \
        "$data/$source" "$save" "$corpus/tasks/$task" "$source" "$body/checkpoint_last.pt" \
        $recipe/config/classify-toy.yaml "$configs/classify-$task.yaml" --seed "$seed" "$@" \
        ${updates[@]+"${updates[@]}"}
    doing="$task, $model, seed $seed, test" logged "$save/test.log" bash $recipe/zero-shot.sh \
        "$classifier/checkpoint_best.pt" "$save" "$corpus/tasks/$task" "${tests[@]}"
}

# classify_joint SAVE TEXT TASK SEED TARGET,TARGET: TEXT names the folder of the text and that of the body
classify_joint() {
    local save=$output/$1 body=$output/body/$2
    same_settings "$save" "$(tuned "$body" "$3" $recipe/config/classify-joint.yaml)"
    [ ! -s "$save/scores.json" ] || return 0
    doing="$3, $2, seed $4" logged "$save/out.log" bash $recipe/joint.sh "$data/$2" "$save" "$corpus/tasks/$3" \
        "$source" "$5" "$body/checkpoint_last.pt" $recipe/config/classify-toy.yaml "$configs/classify-$3.yaml" \
        --seed "$4" ${updates[@]+"${updates[@]}"}
}

# clwe body|language-module DATA FOLDER LOG ARGUMENT ...
clwe() { doing="mapped embeddings" logged "$4" bash $recipe/clwe.sh "$1" "$2" "$3" "${@:5}"; }

# picture body|modules LOG ...: the curves of all of these that there are, bits a masked word
picture() {
    local log name=$1 runs=(); shift
    for log; do
        [ ! -f "$log" ] || runs+=("$(dirname "${log#"$output/$name/"}")=$log")
    done
    [ ${#runs[@]} -eq 0 ] ||
        python -m fairseq_xl curves --output "$output/$name.png" --metric nsp_mlm_loss "${runs[@]}"
}

! chosen data || fetch_corpus "$languages" mono
for task in nc qam; do
    ! chosen finetune || [ -d "$corpus/tasks/$task" ] || refuse "$corpus has no tasks/$task, which fine-tuning needs"
done
if chosen data; then
    for language in ${languages//,/ }; do binarise "$data/$language" "$language"; done
    for target in ${targets//,/ }; do
        ! wanted joint || binarise "$data/joint-$target" "$source" "$target"
        ! wanted disjoint || logged "$output/data.log" python -m preprocess.disjoint "$data/disjoint-$target" \
            "$data/$source" "$data/$target"
    done
    ! wanted multi || binarise "$data/multi" ${languages//,/ }
fi
if chosen body; then
    ! wanted tokens || pretrain body/tokens "$data/$source" $configs/pretrain.yaml
    if wanted positions || wanted noise || wanted adapters; then
        pretrain body/positions "$data/$source" $configs/pretrain.yaml --language-positions
    fi
    for target in ${targets//,/ }; do
        for model in joint disjoint; do
            ! wanted $model ||
                pretrain "body/$model-$target" "$data/$model-$target" $configs/pretrain.yaml $configs/joint.yaml
        done
    done
    ! wanted multi || pretrain body/multi "$data/multi" $configs/pretrain.yaml $configs/multi.yaml
    ! wanted clwe || clwe body "$data/$source" "$output/body/clwe" "$output/body/clwe/out.log" 128 \
        $recipe/config/toy.yaml $configs/pretrain.yaml "${seeded[@]}" ${updates[@]+"${updates[@]}"}
fi
if chosen modules; then
    ! wanted tokens || learn tokens tokens
    if wanted positions || wanted noise || wanted adapters; then
        learn positions positions --language-positions
    fi
    ! wanted adapters || learn positions adapters --language-positions --adapters 32
    for target in ${targets//,/ }; do
        ! wanted clwe || clwe language-module "$data/$target" "$output/modules/clwe/$target" "$output/modules/clwe/$target.log" \
            "$output/body/clwe"
    done
fi
if chosen finetune; then
    for seed in ${seeds//,/ }; do
        for task in nc qam; do
            ! wanted tokens || classify tokens $task "$seed" tokens tokens
            ! wanted positions || classify positions $task "$seed" positions positions --language-positions
            # what step 3 trains is the same with and without adapters, which English has none of
            if wanted noise || wanted adapters; then
                classify noise $task "$seed" positions positions --language-positions --embedding-noise 0.075
            fi
            ! wanted adapters || CLASSIFIER=noise classify adapters $task "$seed" positions adapters --language-positions
            ! wanted clwe || classify clwe $task "$seed" clwe clwe
            for target in ${targets//,/ }; do
                for model in joint disjoint; do
                    ! wanted $model ||
                        classify_joint "$model/$target/$task-$seed" "$model-$target" $task "$seed" "$target"
                done
            done
            ! wanted multi || classify_joint "multi/$task-$seed" multi $task "$seed" "$targets"
        done
    done
fi
if chosen report; then
    picture body "$output"/body/*/train.log
    picture modules "$output"/modules/*/*/train.log
    python -m recipes.monotrans.report "$output" --models "$models" --langs "$languages" --seeds "$seeds" \
        --corpus "$corpus"
fi
