#!/usr/bin/env bash
# zero-shot.sh CHECKPOINT OUTPUT TASK_FILES LANGUAGE=DATA[:MODULE] ... [--split valid] [--type TYPE]
# [--normalization mlqa]: MonoTrans, step 4: tests the classifier CHECKPOINT in every LANGUAGE with that language's
# language module in place of its own (M1); ends with OUTPUT/scores.json. DATA is the folder with the language's
# dictionary and pieces; without a MODULE the checkpoint's own is used. --split: valid or test (default: test). TYPE is
# that of finetune.sh (default: classification). --normalization: how answers are normalized before scoring, squad or
# mlqa (question-answering only; default: squad). --predict "--fp16" adds flags to fairseq-validate. Files without labels
# are predicted and not scored.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments checkpoint output task_files language -- "$@"
languages= split=test type=classification normalization= score=()
shift 3
take_own_options "$@"
set -- "${words[@]}"
while [ $# -gt 2 ]; do
    case ${*: -2:1} in
        --split) split=${*: -1} ;;
        --type) type=${*: -1} ;;
        --normalization) normalization=${*: -1} ;;
        *) break ;;
    esac
    set -- "${@:1:$#-2}"
done
task_type "$type"
if [ "$type" = question-answering ]; then
    score=(--references "$task_files" --normalization "${normalization:-squad}")
elif [ -n "$normalization" ]; then
    refuse "--normalization is for --type question-answering"
fi
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
[ -d "$task_files" ] || refuse "TASK_FILES $task_files: no such folder"
for argument; do
    [[ $argument =~ ^[^=]+=[^:]+(:.+)?$ ]] || refuse "$argument: expected LANGUAGE=DATA or LANGUAGE=DATA:MODULE"
    [[ $argument != *:* ]] || [ -f "${argument#*:}" ] || refuse "$argument: there is no MODULE ${argument#*:}"
    [[ ,$languages, != *,${argument%%=*},* ]] || refuse "$argument: ${argument%%=*} is named twice"
    languages+=${languages:+,}${argument%%=*}
done
for argument; do
    data=${argument#*=}
    check_language "${data%%:*}" "${argument%%=*}"
    check_files "$task_files" "$split" "${argument%%=*}" "$suffix"
done
labeled=$(python -m recipes.finetuning labeled "$type:$task_files" "$split" "$languages")
mkdir -p "$output"
for argument; do
    language=${argument%%=*} data=${argument#*=} module=()
    log=$output/$split.$language.log
    if [[ $data = *:* ]]; then module=(--language-module "${data#*:}"); fi
    if ! fairseq-validate "${data%%:*}" --user-dir "$package" --config "$recipes/xlm/config/predict.yaml" \
        --task "$task" --valid-subset "$split" --path "$checkpoint" --task-files "$task_files" --lang "$language" \
        ${module[@]+"${module[@]}"} --predictions-to "$output/predictions" ${predict[@]+"${predict[@]}"} >"$log" 2>&1; then
        what_failed "$log"
        ! grep -q '^fairseq_xl: error.*trained with --task xl_pretraining' "$log" ||
            echo "CHECKPOINT $checkpoint is a pre-trained model, not a classifier of finetune.sh" >&2
        [ ${#module[@]} -gt 0 ] || ! grep -q 'with another dictionary' "$log" || echo "$argument: it has no MODULE" >&2
        exit 1
    fi
done
[ "$labeled" ] || { echo "not scored (no labels): $output/predictions"; exit; }
replacing "$output/scores.json" \
    python -m fairseq_xl score "$type" "$output/predictions" --split "$split" --langs "$languages" \
    ${score[@]+"${score[@]}"}
echo "$output/scores.json"
