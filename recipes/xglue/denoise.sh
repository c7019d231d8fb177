#!/usr/bin/env bash
# denoise.sh OBJECTIVE DATA CHECKPOINT OUTPUT_DIR TEXT LANGUAGES [--flag value ...]: a pre-trained xDAE or xFNP restores
# a corrupted test set; ends with OUTPUT_DIR/scores.json: BLEU-4 against the clean text in each of LANGUAGES, and under
# "copy" the scores of the corrupted text without its <mask>.
#
# OBJECTIVE is xdae or xfnp. TEXT is a folder of raw text, test.LANGUAGE. The noise is a function of language and line.
# An xFNP generates the masked spans only; they are inserted where the masks were. Flags are those of fairseq-generate:
# --objective-options 'xdae.noise=mask' for other noise, --gen-subset valid for valid.LANGUAGE, --beam 1.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments objective data checkpoint output_dir text languages -- "$@"
split=test
shift 6
[[ $objective = xdae || $objective = xfnp ]] || refuse "OBJECTIVE $objective: one of xdae, xfnp"
[[ " $* " =~ \ --gen-subset[\ =]([^ ]+) ]] && split=${BASH_REMATCH[1]}
[ -f "$checkpoint" ] || refuse "$checkpoint: no such file"
for language in ${languages//,/ }; do
    check_language "$data" "$language"
    text_file "$text/$split.$language" || refuse "$text/$split.$language: no such file"
done
for language in ${languages//,/ }; do
    fairseq-generate "$data" --user-dir "$package" --config "$recipes/xglue/config/denoise.yaml" \
        --eval-langs "$language" --results-path "$output_dir/outputs/$language" --path "$checkpoint" \
        --task-files "$text" --denoise "$objective" --corrupted-to "$output_dir/text" "$@"
done
python -m fairseq_xl score generation "$output_dir/outputs" --langs "$languages" --references "$output_dir/text" \
    --copy --split "$split" --output "$output_dir/scores.json"
