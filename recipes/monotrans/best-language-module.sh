#!/usr/bin/env bash
# best-language-module.sh DATA SAVE_DIR BODY CHECKPOINT TASK_FILES LANGUAGE SEEDS [CONFIG.yaml ...] [--flag value ...]:
# step 2 with each of SEEDS (1,2,3); keeps the module with the best accuracy of the classifier CHECKPOINT on the valid
# file of LANGUAGE (M7: el, th and sw); ends with SAVE_DIR/language-module.pt. CONFIG and flags are those of
# pretrain.sh. A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 7 "$@"
data=$1 save=$2 body=$3 checkpoint=$4 files=$5 language=$6 seeds=$7
shift 7
[ -e "$body" ] || refuse "BODY $body: no such file or folder"  # published weights are a folder
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
for seed in ${seeds//,/ }; do check_number SEEDS "$seed"; done
check_language "$data" "$language"
check_files "$files" valid "$language"
[ ! -e "$save/language-module.pt" ] || [ -f "$save/settings.json" ] ||
    refuse "$save has a language-module.pt and no settings.json: name another SAVE_DIR"
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
python -m recipes.best_seed check "$checkpoint" "$body"
python -m recipes.settings "$save" "$language" "$recipe/config/pretrain.yaml" "$data/dict.txt" "$body" "$@"
for seed in ${seeds//,/ }; do
    bash "$recipe/learn-language-module.sh" "$data" "$save/$seed" "$body" "$@" --seed "$seed"
    bash "$recipe/zero-shot.sh" "$checkpoint" "$save/$seed/valid" "$files" \
        "$language=$data:$save/$seed/language-module.pt" --split valid
done
best=$(python -m recipes.best_seed choose "$save" "$seeds")
echo "best: seed $best" >&2
replacing "$save/language-module.pt" cat "$save/$best/language-module.pt"
