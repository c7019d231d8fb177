#!/usr/bin/env bash
# finetune.sh MODE DATA SAVE_DIR TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: fine-tuning in one of
# the four modes of U8; ends with SAVE_DIR/scores.json, the accuracy in each of LANGUAGES, of which the first is the
# source.
#
#   cross-lingual    trains on the source, tests in every language
#   multi-language   trains on all languages together, tests in every language
#   translate-train  trains a model for each language on that language, and tests it there
#   translate-test   trains on the source, tests on TASK_FILES/translate_test/LANGUAGE, translations into the source
#
# TASK_FILES has SPLIT.LANGUAGE.tsv, and training files translated from the source in TASK_FILES/translate_train. INIT
# is a checkpoint or "random". At paper size without a CONFIG. Run again, it goes on where it stopped.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$recipes/common.sh"
arguments 6 "$@"
mode=$1 data=$2 save=$3 files=$4 languages=$5 init=(--init-from "$6")
[ "$6" != random ] || init=()
shift 6
export PYTHONPATH=$recipes/..${PYTHONPATH:+:$PYTHONPATH}
source=${languages%%,*}
classify() {
    local folder=$1 texts=$2 train=$3 evaluate=$4; shift 4
    bash "$recipes/xlm/classify.sh" "$data" "$folder" "$texts" "$train" "$evaluate" \
        "$recipes/unicoder/config/classify.yaml" "$@" ${init[@]+"${init[@]}"}
}
# What each language's own model, or test set, came to, as one set of scores.
gather() {
    python -m fairseq_xl.evaluation.classification "$save/predictions" --langs "$languages" >"$save/scores.json.tmp"
    mv "$save/scores.json.tmp" "$save/scores.json"
}
case $mode in
    cross-lingual) classify "$save" "$files" "$source" "$languages" "$@" ;;
    multi-language) classify "$save" "$files:$files/translate_train" "$languages" "$languages" "$@" ;;
    translate-train)
        mkdir -p "$save/predictions"
        for language in ${languages//,/ }; do
            classify "$save/$language" "$files:$files/translate_train" "$language" "$language" "$@"
            cp "$save/$language/predictions/test.$language.tsv" "$save/predictions/"
        done
        gather
        ;;
    translate-test)
        classify "$save" "$files" "$source" "$source" "$@"
        for language in ${languages//,/ }; do
            [ "$language" != "$source" ] || continue
            python "$recipes/launch.py" validate "$data" "$recipes/xlm/config/classify-test.yaml" \
                --path "$save/checkpoint_best.pt" --task-files "$files/translate_test/$language" --eval-langs "$source" \
                --predictions-to "$save/$language" >"$save/test.$language.log" 2>&1 ||
                { tail -n 3 "$save/test.$language.log" >&2; exit 1; }
            cp "$save/$language/test.$source.tsv" "$save/predictions/test.$language.tsv"
        done
        gather
        ;;
    *) refuse "$mode is none of the modes of --help" ;;
esac
