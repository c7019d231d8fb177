#!/usr/bin/env bash
# joint.sh DATA SAVE_DIR TASK_FILES LANGUAGE TARGETS BODY [--type TYPE] [--config FILE ...] [--flag value ...]:
# fine-tunes all parameters of a joint model (M8) on LANGUAGE, best epoch by LANGUAGE's validation file, and tests it in
# LANGUAGE and TARGETS (joined by commas); ends with SAVE_DIR/scores.json. DATA is text of all these languages together,
# BODY a checkpoint of pretrain.sh on it. TYPE and flags are those of finetune.sh. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir task_files language targets body -- "$@"
tests=()
shift 6
type=$(setting type=classification "$@")
task_type "$type"
[ -z "$(tr , '\n' <<<"$language,$targets" | sort | uniq -d)" ] || refuse "$language and $targets: one is named twice"
for target in $language ${targets//,/ }; do
    check_language "$data" "$target"
    check_files "$task_files" test "$target" "$suffix"
done
bash "$recipes/monotrans/finetune.sh" "$data" "$save_dir" "$task_files" "$language" "$body" \
    --config "$recipes/monotrans/config/finetune-joint.yaml" "$@"
for target in $language ${targets//,/ }; do tests+=("$target=$data"); done
normalization=$(setting normalization "$@")
exec bash "$recipes/monotrans/zero-shot.sh" "$save_dir/checkpoint_best.pt" "$save_dir" "$task_files" "${tests[@]}" \
    --type "$type" ${normalization:+--normalization "$normalization"}
