#!/usr/bin/env bash
# best-language-module.sh DATA SAVE_DIR BODY CHECKPOINT TASK_FILES LANGUAGE SEEDS [--config FILE ...] [--flag value
# ...]: step 2 with each of SEEDS (1,2,3); keeps the module with the best accuracy of the classifier CHECKPOINT on the
# valid file of LANGUAGE (M7: el, th and sw); ends with SAVE_DIR/language-module.pt. Flags are those of pretrain.sh. A
# repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir body checkpoint task_files language seeds -- "$@"
shift 7
[ -e "$body" ] || refuse "BODY $body: no such file or folder"  # published weights are a folder
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
for seed in ${seeds//,/ }; do
    [[ $seed =~ ^[1-9][0-9]*$ ]] || refuse "SEEDS $seed: a whole number above 0 is needed"
done
check_language "$data" "$language"
check_files "$task_files" valid "$language"
[ ! -e "$save_dir/language-module.pt" ] || [ -f "$save_dir/settings.json" ] ||
    refuse "$save_dir has a language-module.pt and no settings.json: name another SAVE_DIR"
python -m recipes.best_seed check "$checkpoint" "$body"
python -m recipes.settings "$save_dir" "$language" "$data/dict.txt" "$body" \
    --config "$recipes/monotrans/config/pretrain.yaml" "$@"
for seed in ${seeds//,/ }; do
    bash "$recipes/monotrans/add-language.sh" "$data" "$save_dir/$seed" "$body" "$@" --seed "$seed"
    bash "$recipes/monotrans/zero-shot.sh" "$checkpoint" "$save_dir/$seed/valid" "$task_files" \
        "$language=$data:$save_dir/$seed/language-module.pt" --split valid
done
best=$(python -m recipes.best_seed choose "$save_dir" "$seeds")
echo "best: seed $best" >&2
replacing "$save_dir/language-module.pt" cat "$save_dir/$best/language-module.pt"
