#!/usr/bin/env bash
# best-language-module.sh DATA SAVE_DIR BODY CHECKPOINT TASK_FILES LANGUAGE [CONFIG.yaml ...] [--flag value ...]: step
# 2 once for each of SEEDS (in the environment; default: 1 2 3), of which the best is kept by the valid file of
# LANGUAGE with the classifier CHECKPOINT (M7: el, th and sw); ends with SAVE_DIR/language-module.pt. CONFIG and flags
# are those of pretrain.sh.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
data=$1 save=$2 body=$3 checkpoint=$4 files=$5 language=$6 best=
shift 6
[ -e "$body" ] || refuse "BODY $body: no such file or folder"  # published weights are a folder
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
check_language "$data" "$language"
check_files "$files" valid "$language"
for seed in ${SEEDS:-1 2 3}; do check_number SEEDS "$seed"; done
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
# body_of CHECKPOINT: the digest of the body of one of ours that has a language module, else nothing
body_of() {
    python -m fairseq_xl language-module list "$1" 2>/dev/null |
        python -c 'import json, sys; [module] = json.load(sys.stdin).values(); print(module["body"])' 2>/dev/null || true
}
digest=$(body_of "$body")
[ -z "$digest" ] || [ "$digest" = "$(body_of "$checkpoint")" ] ||
    refuse "CHECKPOINT $checkpoint was not fine-tuned from BODY $body"
classifier=$(python -c 'import sys; from fairseq_xl.io.checkpoints import load_checkpoint as load
print("labels" in load(sys.argv[1])["task_state"]["fairseq_xl"])' "$checkpoint" 2>/dev/null || true)
[ "$classifier" = True ] || refuse "CHECKPOINT $checkpoint is no classifier of finetune.sh"
[ ! -e "$save/language-module.pt" ] || [ -f "$save/settings" ] || refuse "$save has a language-module.pt and no settings: name another SAVE_DIR"
same_settings "$save" "best $language $(settings_of "$recipe/config/pretrain.yaml" "$data/dict.txt" "$body" "$@")" SAVE_DIR
accuracy() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))["accuracy"])' "$1/scores.json"; }
for seed in ${SEEDS:-1 2 3}; do
    bash "$recipe/learn-language-module.sh" "$data" "$save/$seed" "$body" "$@" --seed "$seed"
    SPLIT=valid bash "$recipe/zero-shot.sh" "$checkpoint" "$save/$seed/valid" "$files" "$language=$data:$save/$seed/language-module.pt"
    found=$(accuracy "$save/$seed/valid")
    echo "seed $seed: $found" >&2
    if [ -z "$best" ] || awk "BEGIN { exit !($found > $(accuracy "$save/$best/valid")) }"; then best=$seed; fi
done
echo "best: seed $best" >&2
replacing "$save/language-module.pt" cat "$save/$best/language-module.pt"
