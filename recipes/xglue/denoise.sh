#!/usr/bin/env bash
# denoise.sh OBJECTIVE DATA CHECKPOINT OUTPUT_DIR TEXT LANGUAGES [--flag value ...]: a pre-trained xDAE or xFNP restores
# a corrupted test set; ends with OUTPUT_DIR/scores.json: BLEU-4 against the clean text in each of LANGUAGES, and under
# "copy" the scores of the corrupted text without its <mask>.
#
# OBJECTIVE is xdae or xfnp. TEXT is a folder of raw text, test.LANGUAGE. The noise is a function of language and line.
# An xFNP generates the masked spans only; they are inserted where the masks were. Flags are those of fairseq-generate:
# --objective-options 'xdae.noise=mask' for other noise, --gen-subset valid for valid.LANGUAGE, --beam 1.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
objective=$1 data=$2 checkpoint=$3 output=$4 files=$5 languages=$6 split=test
shift 6
[[ $objective = xdae || $objective = xfnp ]] || refuse "OBJECTIVE $objective: one of xdae, xfnp"
[[ " $* " =~ \ --gen-subset[\ =]([^ ]+) ]] && split=${BASH_REMATCH[1]}
[ -f "$checkpoint" ] || refuse "$checkpoint: no such file"
for language in ${languages//,/ }; do
    check_language "$data" "$language"
    text_file "$files/$split.$language" || refuse "$files/$split.$language: no such file"
done
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
for language in ${languages//,/ }; do
    python "$recipe/../launch.py" generate "$data" "$recipe/config/denoise.yaml" --eval-langs "$language" \
        --results-path "$output/outputs/$language" --path "$checkpoint" --task-files "$files" --denoise "$objective" \
        --corrupted-to "$output/text" "$@"
done
replacing "$output/scores.json" python -m fairseq_xl score generation "$output/outputs" --langs "$languages" \
    --references "$output/text" --copy --split "$split"
