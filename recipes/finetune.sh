#!/usr/bin/env bash
# finetune.sh TYPE DATA SAVE_DIR TASK_FILES TRAIN_LANGS EVAL_LANGS [--no-scores] [--config FILE ...] [--flag value ...]:
# fine-tunes an encoder for tasks of a TYPE: classification, ranking, tagging or question-answering. It selects the
# epoch with the best validation average over EVAL_LANGS (of accuracy, nDCG, or for the last two F1;
# --best-checkpoint-metric and --valid-langs change this), predicts their test files and writes SAVE_DIR/scores.json.
# With --disable-validation it takes the last epoch. Test files without labels are predicted and not scored, with
# --no-scores all. Commas separate languages. --init-from CHECKPOINT sets the encoder's weights (default: random). The
# model has the size of XLM's for XNLI; --config recipes/xlm/config/finetune-toy.yaml makes it small. --predict "--fp16
# --valid-subset valid,test" adds flags to fairseq-validate; a --valid-subset without test needs --no-scores. A repeated
# run resumes; --max-epoch and --max-update may be larger. A SAVE_DIR that was made with other settings or weights is
# refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments type data save_dir task_files train_langs eval_langs -- "$@"
shift 6
take no_scores predict -- "$@"
labeled= score=()
task_type "$type"
set -- "${type_config[@]}" ${words[@]+"${words[@]}"}
python -m recipes.finetuning check "$train_langs" "$eval_langs" "$type:$task_files" "$@" $no_scores "--predict=$predict"
[ "$no_scores" ] || labeled=$(python -m recipes.finetuning labeled "$type:$task_files" test "$eval_langs")
python -m recipes.settings --may-grow "$save_dir" "$type" "$train_langs" "$eval_langs" "$data/dict.txt" \
    "$data/sentencepiece.model" "$task_files" "$@"
fairseq-train "$data" --user-dir "$package" "$@" --task-files "$task_files" --train-langs "$train_langs" \
    --eval-langs "$eval_langs" --save-dir "$save_dir" --log-file "$save_dir/train.log"
checkpoint=$save_dir/checkpoint_best.pt validated=$(setting valid-langs "$@")
[ -e "$checkpoint" ] || checkpoint=$save_dir/checkpoint_last.pt
logged "$save_dir/test.log" fairseq-validate "$data" --user-dir "$package" --config "$recipes/xlm/config/predict.yaml" \
    --task "$task" --path "$checkpoint" --task-files "$task_files" --eval-langs "$eval_langs" \
    ${validated:+--valid-langs "$validated"} --predictions-to "$save_dir/predictions" $predict
[ ! "$no_scores" ] || { echo "not scored (--no-scores): $save_dir/predictions"; exit; }
[ "$labeled" ] || { echo "not scored (no labels): $save_dir/predictions"; exit; }
[ "$type" != question-answering ] ||
    score=(--references "$task_files" --normalization "$(setting normalization=squad "$@")")
python -m fairseq_xl score "$type" "$save_dir/predictions" --langs "$eval_langs" --output "$save_dir/scores.json" \
    ${score[@]+"${score[@]}"} || { echo "finetune.sh: the predictions are in $save_dir/predictions" >&2; exit 1; }
