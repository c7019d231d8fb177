#!/usr/bin/env bash
# joint.sh DATA SAVE_DIR TASK_FILES LANGUAGE TARGETS BODY [CONFIG.yaml ...] [--type TYPE] [--flag value ...]: fine-tunes
# all parameters of a joint model (M8) on LANGUAGE, best epoch by LANGUAGE's validation file, and tests it in LANGUAGE
# and TARGETS (joined by commas); ends with SAVE_DIR/scores.json. DATA is text of all these languages together, BODY a
# checkpoint of pretrain.sh on it. CONFIG, TYPE and flags are those of finetune.sh. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
data=$1 save=$2 files=$3 language=$4 targets=$5 body=$6 tests=()
shift 6
type=$(setting type "$@")
type=${type:-classification}
task_type "$type"
[ -z "$(tr , '\n' <<<"$language,$targets" | sort | uniq -d)" ] || refuse "$language and $targets: one is named twice"
for target in $language ${targets//,/ }; do
    check_language "$data" "$target"
    check_files "$files" test "$target" "$suffix"
done
bash "$recipe/finetune.sh" "$data" "$save" "$files" "$language" "$body" "$recipe/config/finetune-joint.yaml" "$@"
for target in $language ${targets//,/ }; do tests+=("$target=$data"); done
normalization=$(setting normalization "$@")
exec bash "$recipe/zero-shot.sh" "$save/checkpoint_best.pt" "$save" "$files" "${tests[@]}" --type "$type" \
    ${normalization:+--normalization "$normalization"}
