#!/usr/bin/env bash
# denoise.sh OBJECTIVE DATA CHECKPOINT OUTPUT_DIR TEXT LANGUAGES [--flag value ...]: what a pre-trained xDAE or xFNP
# makes of a corrupted test set; ends with OUTPUT_DIR/scores.json, BLEU-4 against the clean text, and under "copy" that of
# the corrupted text as it is, in each of LANGUAGES.
#
# OBJECTIVE is xdae or xfnp, TEXT a folder of raw text, test.LANGUAGE. The noise is a function of language and line. Of an
# xFNP, which writes the masked spans alone, they are put where they were masked. Flags are those of fairseq-generate:
# --objective-options 'xdae.noise=mask' for other noise, --gen-subset valid for valid.LANGUAGE. Run again, it goes on
# where it stopped; what was made with another checkpoint or settings it refuses. GENERATE="--beam 1" is as in
# finetune-generation.sh.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
objective=$1 data=$2 checkpoint=$3 output=$4 files=$5 languages=$6
shift 6
case $objective in
    xdae | xfnp) ;;
    *) refuse "OBJECTIVE $objective: one of xdae, xfnp" ;;
esac
split=test
for ((number = 1; number < $#; number++)); do
    [ "${!number}" != --gen-subset ] || { next=$((number + 1)) split=${!next}; }
done
for flag; do [ "${flag#--gen-subset=}" = "$flag" ] || split=${flag#--gen-subset=}; done
[ -f "$checkpoint" ] || refuse "$checkpoint: no such file"
for language in ${languages//,/ }; do
    check_language "$data" "$language"
    text_file "$files/$split.$language" || refuse "$files/$split.$language: no such file"
done
. "$recipe/writing.sh"
GENERATE="${GENERATE:-}"
settings=$(settings_of "$recipe/config/denoise.yaml" "$checkpoint" "$data/dict.txt" "$data/sentencepiece.model" \
    "$files" "$@")
same_settings "$output" "$objective $languages $GENERATE $settings" OUTPUT_DIR
done_if_scored "$output"
for language in ${languages//,/ }; do
    write "$language" "$recipe/config/denoise.yaml" --path "$checkpoint" --task-files "$files" --denoise "$objective" \
        --corrupted-to "$output/text" "$@"
done
score --references "$output/text" --copy --split "$split"
