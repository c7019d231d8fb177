#!/usr/bin/env bash
# zero-shot.sh CHECKPOINT OUTPUT TASK_FILES LANGUAGE=DATA[:MODULE] ... [--split valid] [--type TYPE]
# [--normalization mlqa] [--predict "--fp16"]: MonoTrans, step 4: tests the classifier CHECKPOINT in every LANGUAGE with
# that language's language module in place of its own (M1); ends with OUTPUT/scores.json. DATA is the folder with the
# language's dictionary and pieces; without a MODULE the checkpoint's own is used. TYPE, --normalization of answers and
# --predict are those of finetune.sh. --split: valid or test, the default. Files without labels are not scored.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments checkpoint output task_files language -- "$@"
shift 3
take split type normalization predict -- "$@"
split=${split:-test} type=${type:-classification} languages=$(IFS=, && echo "${words[*]%%=*}") score=()
task_type "$type"
[ "$type" != question-answering ] || score=(--references "$task_files" --normalization "${normalization:-squad}")
[[ ! $normalization || ${score[*]-} ]] || refuse "--normalization is for --type question-answering"
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
[ -d "$task_files" ] || refuse "TASK_FILES $task_files: no such folder"
for argument in "${words[@]}"; do
    language=${argument%%=*} data=${argument#*=}
    [[ $argument =~ ^[^=]+=[^:]+(:.+)?$ ]] || refuse "$argument: expected LANGUAGE=DATA or LANGUAGE=DATA:MODULE"
    [[ $data != *:* ]] || [ -f "${data#*:}" ] || refuse "$argument: there is no MODULE ${data#*:}"
    [[ ,${languages//,/,,}, != *,$language,*,$language,* ]] || refuse "$argument: $language is named twice"
    check_language "${data%%:*}" "$language"
    check_files "$task_files" "$split" "$language" "$suffix"
done
labeled=$(python -m recipes.finetuning labeled "$type:$task_files" "$split" "$languages")
for argument in "${words[@]}"; do
    language=${argument%%=*} data=${argument#*=} module= log=$output/$split.${argument%%=*}.log
    [[ $data != *:* ]] || module=${data#*:}
    logged "$log" fairseq-validate "${data%%:*}" --user-dir "$package" --config "$recipes/xlm/config/predict.yaml" \
        --task "$task" --valid-subset "$split" --path "$checkpoint" --task-files "$task_files" --lang "$language" \
        ${module:+--language-module "$module"} --predictions-to "$output/predictions" $predict && continue
    ! grep -q '^fairseq_xl: error.*trained with --task xl_pretraining' "$log" ||
        echo "CHECKPOINT $checkpoint is a pre-trained model, not a classifier of finetune.sh" >&2
    [ "$module" ] || ! grep -q 'with another dictionary' "$log" || echo "$argument: it has no MODULE" >&2
    exit 1
done
[ "$labeled" ] || { echo "not scored (no labels): $output/predictions"; exit; }
python -m fairseq_xl score "$type" "$output/predictions" --split "$split" --langs "$languages" \
    --output "$output/scores.json" ${score[@]+"${score[@]}"}
