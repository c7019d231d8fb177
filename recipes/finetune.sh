#!/usr/bin/env bash
# finetune.sh TYPE DATA SAVE_DIR TASK_FILES TRAIN_LANGS EVAL_LANGS [--no-scores] [CONFIG.yaml ...] [--flag value ...]:
# fine-tunes an encoder for tasks of a TYPE: classification, ranking, tagging or question-answering. It selects the
# epoch with the best validation average over EVAL_LANGS (of accuracy, nDCG, or for the last two F1;
# --best-checkpoint-metric and --valid-langs change this), predicts their test files and writes SAVE_DIR/scores.json.
# With --disable-validation it takes the last epoch. Test files without labels are predicted and not scored, with
# --no-scores all.
# Commas separate languages. --init-from CHECKPOINT sets the encoder's weights (default: random). Without CONFIG the
# model has the size of XLM's for XNLI; xlm/config/finetune-toy.yaml is small. PREDICT="--fp16 --valid-subset valid,test"
# adds flags to fairseq-validate; a --valid-subset without test needs --no-scores. A repeated run resumes; --max-epoch and
# --max-update may be larger. A SAVE_DIR that was made with other settings or weights is refused.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipes/common.sh"
arguments 6 "$@"
type=$1 data=$2 save=$3 files=$4 train=$5 evaluate=$6
labeled=
shift 6
task_type "$type"
take_no_scores "$@"
score=()
set -- "${type_config[@]}" ${words[@]+"${words[@]}"}
export PYTHONPATH=$recipes/..${PYTHONPATH:+:$PYTHONPATH}
python -m recipes.finetuning check "$train" "$evaluate" "$type:$files" "$@" ${unscored[@]+"${unscored[@]}"}
[ "${unscored[*]-}" ] || labeled=$(python -m recipes.finetuning labeled "$type:$files" test "$evaluate")
python -m recipes.settings --may-grow "$save" "$type" "$train" "$evaluate" "$data/dict.txt" \
    "$data/sentencepiece.model" "$files" "$@"
python "$recipes/launch.py" train "$data" "$@" --task-files "$files" --train-langs "$train" --eval-langs "$evaluate" \
    --save-dir "$save" --log-file "$save/train.log"
checkpoint=$save/checkpoint_best.pt validated=$(setting valid-langs "$@")
[ -e "$checkpoint" ] || checkpoint=$save/checkpoint_last.pt
# shellcheck disable=SC2086 # words of PREDICT are arguments
python "$recipes/launch.py" validate "$data" "$recipes/xlm/config/predict.yaml" --task "$task" \
    --path "$checkpoint" --task-files "$files" --eval-langs "$evaluate" ${validated:+--valid-langs "$validated"} \
    --predictions-to "$save/predictions" ${PREDICT:-} >"$save/test.log" 2>&1 ||
    { what_failed "$save/test.log"; exit 1; }
[ ! "${unscored[*]-}" ] || { echo "not scored (--no-scores): $save/predictions"; exit; }
[ "$labeled" ] || { echo "not scored (no labels): $save/predictions"; exit; }
if [ "$type" = question-answering ]; then
    normalization=$(setting normalization "$@")
    score=(--references "$files" --normalization "${normalization:-squad}")
fi
replacing "$save/scores.json" python -m fairseq_xl score "$type" "$save/predictions" --langs "$evaluate" \
    ${score[@]+"${score[@]}"} || { echo "finetune.sh: the predictions are in $save/predictions" >&2; exit 1; }
python -m recipes.finetuning show "$save/scores.json"
