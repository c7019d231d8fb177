#!/usr/bin/env bash
# finetune.sh TYPE DATA SAVE_DIR TASK_FILES TRAIN_LANGS EVAL_LANGS [--no-scores] [--config FILE ...] [--flag value ...]:
# fine-tunes an encoder for tasks of a TYPE: classification, ranking, tagging or question-answering. It selects the
# epoch with the best validation average over EVAL_LANGS (of accuracy, nDCG, or for the last two F1;
# --best-checkpoint-metric and --valid-langs change this), predicts their test files and writes SAVE_DIR/scores.json.
# With --disable-validation it takes the last epoch. --grid 'lr=1e-5,2e-5 batch-size=8,16' trains each combination in
# SAVE_DIR/grid, selects the best one (SAVE_DIR/best.json) and tests it once; a repeated run may have more values. With
# --best-by-language each language that has validation text is predicted by the epoch, and the point of the grid, that
# is the best for it, any other one by the best for the average. Test files without labels are predicted and not scored,
# with --no-scores all. Commas separate languages. --init-from CHECKPOINT sets the encoder's weights (default: random).
# The model has the size of XLM's for XNLI; --config recipes/xlm/config/finetune-toy.yaml makes it small. --predict
# "--fp16 --valid-subset valid,test" adds flags to fairseq-validate; a --valid-subset without test needs --no-scores. A
# repeated run resumes; --max-epoch and --max-update may be larger. A SAVE_DIR that was made with other settings or
# weights is refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
arguments type data save_dir task_files train_langs eval_langs -- "$@"
shift 6
take no_scores predict grid -- "$@"
labeled= score=()
task_type "$type"
set -- "${type_config[@]}" ${words[@]+"${words[@]}"}
python -m recipes.finetuning check "$train_langs" "$eval_langs" "$type:$task_files" "$@" $no_scores "--predict=$predict"
[ "$no_scores" ] || labeled=$(python -m recipes.finetuning labeled "$type:$task_files" test "$eval_langs")
[ ! "$grid" ] || points=$(python -m recipes.best_of_grid points "$grid")
python -m recipes.settings --may-grow "$save_dir" "$type" "$train_langs" "$eval_langs" "$data/dict.txt" \
    "$data/sentencepiece.model" "$task_files" "$@" ${grid:+--grid}
train() { # SAVE_DIR [--flag value ...]
    fairseq-train "$data" --user-dir "$package" "${flags[@]}" "${@:2}" --task-files "$task_files" \
        --train-langs "$train_langs" --eval-langs "$eval_langs" --save-dir "$1" --log-file "$1/train.log"
}
predict() { # CHECKPOINT LANGUAGES FOLDER [END OF THE LOG'S NAME]
    logged "$save_dir/test${4-}.log" fairseq-validate "$data" --user-dir "$package" \
        --config "$recipes/xlm/config/predict.yaml" --task "$task" --path "$save_dir/$1" --task-files "$task_files" \
        --eval-langs "$2" ${validated:+--valid-langs "$validated"} --predictions-to "$save_dir/$3" $predict
}
flags=("$@") checkpoint=checkpoint_best.pt validated=$(setting valid-langs "$@")
if [ "$grid" ]; then
    while read -ru 3 name point; do train "$save_dir/grid/$name" $point; done 3<<<"$points"
    python -m recipes.best_of_grid choose "$save_dir" $(cut -d' ' -f1 <<<"$points")
else
    train "$save_dir"
fi
[ -e "$save_dir/$checkpoint" ] || checkpoint=checkpoint_last.pt
if [ "$(setting best-by-language "$@")" ]; then
    for validated in ${eval_langs//,/ }; do
        best=checkpoint_best_$validated.pt
        [ -e "$save_dir/$best" ] || best=$checkpoint
        predict "$best" "$validated" "by-language/$validated" "-$validated"
    done
    python -m recipes.best_of_grid join "$save_dir" "$eval_langs"
else
    predict "$checkpoint" "$eval_langs" predictions
fi
[ ! "$no_scores" ] || { echo "not scored (--no-scores): $save_dir/predictions"; exit; }
[ "$labeled" ] || { echo "not scored (no labels): $save_dir/predictions"; exit; }
[ "$type" != question-answering ] ||
    score=(--references "$task_files" --normalization "$(setting normalization=squad "$@")")
python -m fairseq_xl score "$type" "$save_dir/predictions" --langs "$eval_langs" --output "$save_dir/scores.json" \
    ${score[@]+"${score[@]}"} || { echo "finetune.sh: the predictions are in $save_dir/predictions" >&2; exit 1; }
