#!/usr/bin/env bash
# multitask.sh DATA SAVE_DIR SUBTASKS TRAIN_LANGS EVAL_LANGS [CONFIG.yaml ...] [--flag value ...]: fine-tunes one
# encoder on several subtasks in one run (G13). SUBTASKS is "NAME=TYPE:TASK_FILES NAME=TYPE:TASK_FILES ...", TYPE as in
# finetune.sh; each becomes a labelled objective, and flags of its type, such as --length and --examples-per-epoch, apply
# to each of them; --objective-options 'NAME.examples_per_epoch=500' sets one. It selects the epoch with the best mean
# over the subtasks of accuracy, nDCG or F1, predicts all test files and writes SAVE_DIR/scores/NAME.json. Commas
# separate languages; EVAL_LANGS "en,de,fr NAME=en,de" names those of a subtask that lacks some. Otherwise as finetune.sh,
# PREDICT, --no-scores and repeated runs included.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipes/common.sh"
arguments 5 "$@"
data=$1 save=$2 train=$4 evaluate=$5
read -rd '' -a subtasks <<<"$3" || true
shift 5
take_no_scores "$@"
set -- "$recipes/xlm/config/finetune.yaml" ${words[@]+"${words[@]}"}
files=()
for subtask in "${subtasks[@]}"; do
    [[ $subtask == *=*:* ]] || refuse "SUBTASKS: expected NAME=TYPE:TASK_FILES, found $subtask"
    type=${subtask#*=}
    task_type "${type%%:*}"
done
export PYTHONPATH=$recipes/..${PYTHONPATH:+:$PYTHONPATH}
python -m recipes.finetuning check "$train" "$evaluate" "${subtasks[@]}" "$@" ${unscored[@]+"${unscored[@]}"}
labeled=()
for subtask in "${subtasks[@]}"; do
    tested=${evaluate%% *}
    for part in $evaluate; do [[ $part != "${subtask%%=*}="* ]] || tested=${part#*=}; done
    [ "${unscored[*]-}" ] || labeled+=("$tested:$(python -m recipes.finetuning labeled "${subtask#*=}" test "$tested")")
done
python -m recipes.settings --may-grow "$save" "$train" "$evaluate" "$data/dict.txt" "$data/sentencepiece.model" \
    "${subtasks[@]}" "$@"
flags=$(mktemp -d)
trap 'rm -r "$flags"' EXIT
python -m recipes.finetuning objectives "$train" "$evaluate" "${subtasks[@]}" "$@" >"$flags/run.yaml"
python "$recipes/launch.py" train "$data" "$flags/run.yaml" --save-dir "$save" --log-file "$save/train.log"
checkpoint=$save/checkpoint_best.pt
[ -e "$checkpoint" ] || checkpoint=$save/checkpoint_last.pt
# shellcheck disable=SC2086 # words of PREDICT are arguments
python "$recipes/launch.py" validate "$data" "$recipes/xlm/config/predict.yaml" --task xl_pretraining \
    --objectives "$(setting objectives "$flags/run.yaml")" \
    --objective-options "$(setting objective-options "$flags/run.yaml")" --path "$checkpoint" \
    --predictions-to "$save/predictions" ${PREDICT:-} >"$save/test.log" 2>&1 ||
    { what_failed "$save/test.log"; exit 1; }
[ ! "${unscored[*]-}" ] || { echo "not scored (--no-scores): $save/predictions"; exit; }
normalization=$(setting normalization "$@")
mkdir -p "$save/scores"
for number in "${!subtasks[@]}"; do
    subtask=${subtasks[number]} tested=${labeled[number]%%:*} score=()
    name=${subtask%%=*} type=${subtask#*=}
    [ "${labeled[number]#*:}" ] || { echo "not scored (no labels): $save/predictions/$name"; continue; }
    [ "${type%%:*}" != question-answering ] ||
        score=(--references "${type#*:}" --normalization "${normalization:-squad}")
    replacing "$save/scores/$name.json" python -m fairseq_xl score "${type%%:*}" "$save/predictions/$name" \
        --langs "$tested" ${score[@]+"${score[@]}"}
    files+=("$save/scores/$name.json")
done
[ ${#files[@]} -eq 0 ] || python -m recipes.finetuning show "${files[@]}"
