#!/usr/bin/env bash
# score.sh DATA CHECKPOINT OUTPUT_DIR SOURCE_LANG TARGET_LANG REFERENCE [--flag value ...]: translates the test set with
# fairseq-generate and prints sacreBLEU, its signature and interval, chrF and tokenized BLEU. OUTPUT_DIR/bleu.json gets
# them too, hypotheses.TARGET_LANG the translations; with --gen-subset valid the names are bleu-valid.json and
# hypotheses-valid.TARGET_LANG. If it fails, scores that are there already stay.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data checkpoint output_dir source_lang target_lang reference -- "$@"
shift 6
text_file "$reference" || refuse "REFERENCE $reference: no such file"
mkdir -p "$output_dir"
part=$(mktemp -d "$output_dir/generate.XXXXXX")
trap 'rm -rf "$part"' EXIT
logged "$output_dir/generate.log" fairseq-generate "$data" --user-dir "$package" \
    --config "$recipes/xlm/config/generate.yaml" --path "$checkpoint" -s "$source_lang" -t "$target_lang" "$@" \
    --results-path "$part"
generated=$(basename "$part"/generate-*.txt)
split=${generated#generate-} split=${split%.txt}
name=
[ "$split" = test ] || name=-$split
mv "$part/$generated" "$output_dir"
python -m fairseq_xl score bleu "$output_dir/$generated" "$reference" --lang "$target_lang" \
    --output "$output_dir/bleu$name.json" --save-hypotheses "$output_dir/hypotheses$name.$target_lang"
