#!/usr/bin/env bash
# multitask.sh DATA SAVE_DIR SUBTASKS TRAIN_LANGS EVAL_LANGS [--config FILE ...] [--flag value ...]: fine-tunes one
# encoder on several subtasks in one run (G13). SUBTASKS is "NAME=TYPE:TASK_FILES NAME=TYPE:TASK_FILES ...", TYPE as in
# finetune.sh; each becomes a labelled objective, and flags of its type, such as --length and --examples-per-epoch,
# apply to each of them; --objective-options 'NAME.examples_per_epoch=500' sets one. It selects the epoch with the best
# mean over the subtasks of accuracy, nDCG or F1, predicts all test files and writes SAVE_DIR/scores/NAME.json. Commas
# separate languages; EVAL_LANGS "en,de,fr NAME=en,de" names those of a subtask that lacks some. Otherwise as
# finetune.sh, --predict, --no-scores and repeated runs included.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments data save_dir subtasks train_langs eval_langs -- "$@"
read -rd '' -a subtasks <<<"$subtasks" || true
shift 5
take_own_options "$@"
set -- --config "$recipes/xlm/config/finetune.yaml" ${words[@]+"${words[@]}"}
files=()
for subtask in "${subtasks[@]}"; do
    [[ $subtask == *=*:* ]] || refuse "SUBTASKS: expected NAME=TYPE:TASK_FILES, found $subtask"
    type=${subtask#*=}
    task_type "${type%%:*}"
done
python -m recipes.finetuning check "$train_langs" "$eval_langs" "${subtasks[@]}" "$@" ${unscored[@]+"${unscored[@]}"} \
    "--predict=${predict[*]-}"
labeled=()
for subtask in "${subtasks[@]}"; do
    tested=${eval_langs%% *}
    for part in $eval_langs; do [[ $part != "${subtask%%=*}="* ]] || tested=${part#*=}; done
    [ "${unscored[*]-}" ] || labeled+=("$tested:$(python -m recipes.finetuning labeled "${subtask#*=}" test "$tested")")
done
python -m recipes.settings --may-grow "$save_dir" "$train_langs" "$eval_langs" "$data/dict.txt" \
    "$data/sentencepiece.model" "${subtasks[@]}" "$@"
flags=$(mktemp -d)
trap 'rm -r "$flags"' EXIT
launch=$(setting launch "$@")
python -m recipes.finetuning objectives "$train_langs" "$eval_langs" "${subtasks[@]}" "$@" >"$flags/run.yaml"
fairseq-train "$data" --user-dir "$package" --config "$flags/run.yaml" ${launch:+--launch "$launch"} \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
checkpoint=$save_dir/checkpoint_best.pt
[ -e "$checkpoint" ] || checkpoint=$save_dir/checkpoint_last.pt
fairseq-validate "$data" --user-dir "$package" --config "$recipes/xlm/config/predict.yaml" --task xl_pretraining \
    --objectives "$(setting objectives --config "$flags/run.yaml")" \
    --objective-options "$(setting objective-options --config "$flags/run.yaml")" --path "$checkpoint" \
    --predictions-to "$save_dir/predictions" ${predict[@]+"${predict[@]}"} >"$save_dir/test.log" 2>&1 ||
    { what_failed "$save_dir/test.log"; exit 1; }
[ ! "${unscored[*]-}" ] || { echo "not scored (--no-scores): $save_dir/predictions"; exit; }
normalization=$(setting normalization "$@")
mkdir -p "$save_dir/scores"
for number in "${!subtasks[@]}"; do
    subtask=${subtasks[number]} tested=${labeled[number]%%:*} score=()
    name=${subtask%%=*} type=${subtask#*=}
    [ "${labeled[number]#*:}" ] || { echo "not scored (no labels): $save_dir/predictions/$name"; continue; }
    [ "${type%%:*}" != question-answering ] ||
        score=(--references "${type#*:}" --normalization "${normalization:-squad}")
    replacing "$save_dir/scores/$name.json" python -m fairseq_xl score "${type%%:*}" "$save_dir/predictions/$name" \
        --langs "$tested" ${score[@]+"${score[@]}"}
    files+=("$save_dir/scores/$name.json")
done
[ ${#files[@]} -eq 0 ] || python -m recipes.finetuning show "${files[@]}"
