#!/usr/bin/env bash
# best-language-module.sh DATA SAVE_DIR BODY CHECKPOINT TASK_FILES LANGUAGE [CONFIG.yaml ...] [--flag value ...]: step
# 2 with each of SEEDS (in the environment; default: 1 2 3); keeps the module with the best accuracy of the classifier
# CHECKPOINT on the valid file of LANGUAGE (M7: el, th and sw); ends with SAVE_DIR/language-module.pt. CONFIG and flags
# are those of pretrain.sh.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
data=$1 save=$2 body=$3 checkpoint=$4 files=$5 language=$6
shift 6
[ -e "$body" ] || refuse "BODY $body: no such file or folder"  # published weights are a folder
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
check_language "$data" "$language"
check_files "$files" valid "$language"
for seed in ${SEEDS:-1 2 3}; do check_number SEEDS "$seed"; done
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
modules="python -m fairseq_xl language-module list"
digest=$($modules "$body" 2>/dev/null | grep -o '"body": "[^"]*"' || true)  # none of a body without a language module
[ -z "$digest" ] || [ "$digest" = "$($modules "$checkpoint" 2>/dev/null | grep -o '"body": "[^"]*"' || true)" ] ||
    refuse "CHECKPOINT $checkpoint was not fine-tuned from BODY $body"
classifier=$(python -c 'import sys; from fairseq_xl.io.checkpoints import load_checkpoint as load
print("labels" in load(sys.argv[1])["task_state"]["fairseq_xl"])' "$checkpoint" 2>/dev/null || true)
[ "$classifier" = True ] || refuse "CHECKPOINT $checkpoint is no classifier of finetune.sh"
[ ! -e "$save/language-module.pt" ] || [ -f "$save/settings.json" ] ||
    refuse "$save has a language-module.pt and no settings.json: name another SAVE_DIR"
python -m recipes.settings "$save" "$language" "$recipe/config/pretrain.yaml" "$data/dict.txt" "$body" "$@"
for seed in ${SEEDS:-1 2 3}; do
    bash "$recipe/learn-language-module.sh" "$data" "$save/$seed" "$body" "$@" --seed "$seed"
    SPLIT=valid bash "$recipe/zero-shot.sh" "$checkpoint" "$save/$seed/valid" "$files" "$language=$data:$save/$seed/language-module.pt"
done
# shellcheck disable=SC2086 # words of SEEDS are arguments
best=$(python -c 'import json, sys; save, *seeds = sys.argv[1:]
print(max(seeds, key=lambda seed: json.load(open(f"{save}/{seed}/valid/scores.json"))["accuracy"]))' "$save" ${SEEDS:-1 2 3})
echo "best: seed $best" >&2
replacing "$save/language-module.pt" cat "$save/$best/language-module.pt"
