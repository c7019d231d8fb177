#!/usr/bin/env bash
# multitask.sh DATA SAVE_DIR SUBTASKS TRAIN_LANGS EVAL_LANGS [--config FILE ...] [--flag value ...]: fine-tunes one
# encoder on several subtasks in one run (G13). SUBTASKS is "NAME=TYPE:TASK_FILES NAME=TYPE:TASK_FILES ...", TYPE as in
# finetune.sh; each becomes a labelled objective, and flags of its type, such as --length and --examples-per-epoch,
# apply to each of them; --objective-options 'NAME.examples_per_epoch=500' sets one. It selects the epoch with the best
# mean over the subtasks of accuracy, nDCG or F1, predicts all test files and writes SAVE_DIR/scores/NAME.json. Commas
# separate languages; EVAL_LANGS "en,de,fr NAME=en,de" names those of one subtask. The rest is as in finetune.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments data save_dir subtasks train_langs eval_langs -- "$@"
shift 5
take no_scores predict -- "$@"
read -rd '' -a subtasks <<<"$subtasks" || true
for subtask in "${subtasks[@]}"; do
    [[ $subtask = *=*:* ]] || refuse "SUBTASKS: expected NAME=TYPE:TASK_FILES, found $subtask"
done
set -- --config "$recipes/xlm/config/finetune.yaml" ${words[@]+"${words[@]}"}
python -m recipes.finetuning check "$train_langs" "$eval_langs" "${subtasks[@]}" "$@" $no_scores "--predict=$predict"
scored=$([ "$no_scores" ] || python -m recipes.finetuning scored "$eval_langs" "${subtasks[@]}")
python -m recipes.settings --may-grow "$save_dir" "$train_langs" "$eval_langs" "$data/dict.txt" \
    "$data/sentencepiece.model" "${subtasks[@]}" "$@"
flags=$(mktemp -d) run=$flags/run.yaml launch=$(setting launch "$@")
trap 'rm -r "$flags"' EXIT
python -m recipes.finetuning objectives "$train_langs" "$eval_langs" "${subtasks[@]}" "$@" >"$run"
fairseq-train "$data" --user-dir "$package" --config "$run" ${launch:+--launch "$launch"} --save-dir "$save_dir" \
    --log-file "$save_dir/train.log"
checkpoint=$save_dir/checkpoint_best.pt
[ -e "$checkpoint" ] || checkpoint=$save_dir/checkpoint_last.pt
logged "$save_dir/test.log" fairseq-validate "$data" --user-dir "$package" --config "$recipes/xlm/config/predict.yaml" \
    --task xl_pretraining --objectives "$(setting objectives --config "$run")" --path "$checkpoint" \
    --objective-options "$(setting objective-options --config "$run")" --predictions-to "$save_dir/predictions" $predict
[ ! "$no_scores" ] || { echo "not scored (--no-scores): $save_dir/predictions"; exit; }
mkdir -p "$save_dir/scores"
while IFS=$'\t' read -r name type files languages labeled; do
    [ "$labeled" ] || { echo "not scored (no labels): $save_dir/predictions/$name"; continue; }
    score=(--references "$files" --normalization "$(setting normalization=squad "$@")")
    [ "$type" = question-answering ] || score=()
    echo "$name" && python -m fairseq_xl score "$type" "$save_dir/predictions/$name" --langs "$languages" \
        --output "$save_dir/scores/$name.json" ${score[@]+"${score[@]}"}
done <<<"$scored"
