#!/usr/bin/env bash
# finetune-generation.sh MODE DATA SAVE_DIR TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: fine-tuning
# for titles, questions or summaries in the text's own language; ends with SAVE_DIR/scores.json: BLEU-4, ROUGE-L and the
# share of outputs in a wrong language, in each of LANGUAGES. Validation text of LANGUAGES, or of --valid-langs, selects
# the checkpoint.
#
#   pivot            trains on the first of LANGUAGES, generates every language (G11)
#   multi-language   trains on all languages together, generates every language (G12)
#   LANGUAGE         trains on this one of LANGUAGES, generates every language
#
# TASK_FILES has SPLIT.LANGUAGE.src and .tgt, raw text line by line. INIT is a checkpoint of xDAE or xFNP, an encoder's,
# or "random". Without a CONFIG it has the size and settings of the paper's xDAE; config/generation-xfnp.yaml has
# xFNP's. GENERATE="--lenpen 0.8 --beam 10" has flags of fairseq-generate for the test sets. A repeated run resumes: it
# generates only languages without outputs. A SAVE_DIR that was made with other weights or settings is refused.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
mode=$1 data=$2 output=$3 files=$4 languages=$5 weights=$6
shift 6
case ,pivot,multi-language,$languages, in
    *",$mode,"*) ;;
    *) refuse "MODE $mode: one of pivot, multi-language${languages:+, ${languages//,/, }}" ;;
esac
trained=$mode
[ "$mode" != pivot ] || trained=${languages%%,*}
[ "$mode" != multi-language ] || trained=$languages
for language in ${trained//,/ }; do
    text_file "$files/train.$language.src" || refuse "$files/train.$language.src: no such file"
done
[ "$weights" = random ] || set -- "$@" --init-from "$weights"
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
# shellcheck disable=SC2086 # words of GENERATE are arguments
python -m recipes.settings "$output" "$mode" "$languages" "$weights" "$data/dict.txt" "$data/sentencepiece.model" \
    "$files" "$recipe/config/generation.yaml" "$recipe/config/generate.yaml" "$@" GENERATE ${GENERATE:-}
python "$recipe/../launch.py" train "$data" "$recipe/config/generation.yaml" "$@" --task-files "$files" \
    --train-langs "$trained" --eval-langs "$languages" --save-dir "$output" --log-file "$output/train.log"
for language in ${languages//,/ }; do
    folder=$output/outputs/$language
    [ ! -f "$folder/generate-test.txt" ] || continue
    rm -rf "$folder" "$folder.part"
    # shellcheck disable=SC2086 # words of GENERATE are arguments
    python "$recipe/../launch.py" generate "$data" "$recipe/config/generate.yaml" --eval-langs "$language" \
        --results-path "$folder.part" --path "$output/checkpoint_best.pt" --task-files "$files" ${GENERATE:-}
    mv "$folder.part" "$folder"
done
replacing "$output/scores.json" python -m fairseq_xl score generation "$output/outputs" --langs "$languages" \
    --references "$files"
