#!/usr/bin/env bash
# score.sh DATA CHECKPOINT OUTPUT_DIR SOURCE_LANG TARGET_LANG REFERENCE [--flag value ...]: translates the test set with
# fairseq-generate and prints one JSON line with sacreBLEU, its signature and interval, and tokenized BLEU. The line is
# also written to OUTPUT_DIR/bleu.json, the translations to hypotheses.TARGET_LANG; with --gen-subset valid the names
# are bleu-valid.json and hypotheses-valid.TARGET_LANG. If it fails, scores that are there already stay.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
data=$1 checkpoint=$2 output=$3 source=$4 target=$5 reference=$6
shift 6
text_file "$reference" || refuse "REFERENCE $reference: no such file"
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$output"
part=$(mktemp -d "$output/generate.XXXXXX")
trap 'rm -rf "$part"' EXIT
python "$recipe/../launch.py" generate "$data" "$recipe/config/generate.yaml" --path "$checkpoint" \
    -s "$source" -t "$target" "$@" --results-path "$part" >"$output/generate.log" 2>&1 ||
    { what_failed "$output/generate.log"; exit 1; }
generated=$(basename "$part"/generate-*.txt)
split=${generated#generate-} split=${split%.txt}
name=
[ "$split" = test ] || name=-$split
mv "$part/$generated" "$output"
replacing "$output/bleu$name.json" python -m fairseq_xl score bleu "$output/$generated" "$reference" \
    --language "$target" --save "$output/hypotheses$name.$target"
cat "$output/bleu$name.json"
