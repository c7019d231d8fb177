#!/usr/bin/env bash
# finetune.sh DATA SAVE_DIR TASK_FILES LANGUAGE BODY [--type TYPE] [--config FILE ...] [--flag value ...]: MonoTrans,
# step 3: trains a classifier on LANGUAGE, that of DATA; the language module is frozen (M2, M7). checkpoint_last.pt has
# the last weights, as in the paper, checkpoint_best.pt those of the best epoch by the validation file. TYPE is that of
# recipes/finetune.sh (default: classification). BODY is the checkpoint of step 1. --embedding-noise 0.075 is M4. The
# model has the paper's size; --config recipes/monotrans/config/finetune-toy.yaml makes it small. A repeated run resumes;
# --max-epoch and --max-update may be larger. A SAVE_DIR that was made with other settings or weights is refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir task_files language body -- "$@"
shift 5
take type -- "$@"
type=${type:-classification}
[ -d "$task_files" ] || refuse "TASK_FILES $task_files: no such folder"
task_type "$type"
configs=("${type_config[@]}" --config "$recipes/monotrans/config/finetune.yaml")
case $type in
    tagging) configs+=(--config "$recipes/monotrans/config/without-pooler.yaml") ;;
    question-answering) configs+=(--config "$recipes/monotrans/config/question-answering.yaml") ;;
esac
set -- "${configs[@]}" ${words[@]+"${words[@]}"} --init-from "$body"
python -m recipes.settings --may-grow "$save_dir" "$type" "$language" "$data/dict.txt" \
    "$data/sentencepiece.model" "$task_files" "$@"
last fairseq-train "$data" --user-dir "$package" "$@" --task-files "$task_files" --lang "$language" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
