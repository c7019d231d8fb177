#!/usr/bin/env bash
# finetune-generation.sh MODE DATA SAVE_DIR TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: fine-tuning
# for titles, questions or summaries in the text's own language; ends with SAVE_DIR/scores.json, BLEU-4, ROUGE-L and the
# share of outputs in a wrong language, in each of LANGUAGES, of which the first is the pivot.
#
#   pivot            trains on the pivot alone, writes every language (G11)
#   multi-language   trains on all languages together, writes every language (G12)
#
# TASK_FILES has SPLIT.LANGUAGE.src and .tgt, raw text line by line. INIT is a checkpoint of xDAE or xFNP, an encoder's,
# or "random". At the size and settings of the paper's xDAE without a CONFIG; config/generation-xfnp.yaml has xFNP's.
# GENERATE="--lenpen 0.8 --beam 10" changes how the test sets are written. Run again, it goes on where it stopped; what
# was made with other weights or settings it refuses.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
mode=$1 data=$2 output=$3 files=$4 languages=$5 weights=$6
shift 6
flags=("$@")
[ "$weights" = random ] || flags+=(--init-from "$weights")
case $mode in
    pivot) trained=${languages%%,*} ;;
    multi-language) trained=$languages ;;
    *) refuse "MODE $mode: one of pivot, multi-language" ;;
esac
. "$recipe/writing.sh"
settings=$(settings_of "$recipe/config/generation.yaml" "$recipe/config/generate.yaml" "$data/dict.txt" \
    "$data/sentencepiece.model" "$files" ${flags[@]+"${flags[@]}"})
same_settings "$output" "$mode $languages ${GENERATE:-} $settings" SAVE_DIR
done_if_scored "$output"
python "$recipe/../launch.py" train "$data" "$recipe/config/generation.yaml" ${flags[@]+"${flags[@]}"} \
    --task-files "$files" --train-langs "$trained" --eval-langs "$languages" --save-dir "$output" \
    --log-file "$output/train.log"
for language in ${languages//,/ }; do
    write "$language" "$recipe/config/generate.yaml" --path "$output/checkpoint_best.pt" --task-files "$files"
done
score --references "$files"
