#!/usr/bin/env bash
# score.sh DATA CHECKPOINT OUTPUT_DIR SOURCE_LANG TARGET_LANG REFERENCE [--flag value ...]: translates the test set, or
# the split of --gen-subset, with fairseq-generate and prints one JSON line with sacreBLEU, its signature and interval,
# and tokenized BLEU.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
data=$1 checkpoint=$2 output=$3 source=$4 target=$5 reference=$6
shift 6
text_file "$reference" || refuse "REFERENCE $reference: no such file"
split=$(setting gen-subset "$@")
generated=$output/generate-${split:-test}.txt
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$output"
rm -f "$generated"
python "$recipe/../launch.py" generate "$data" "$recipe/config/generate.yaml" --path "$checkpoint" \
    -s "$source" -t "$target" --results-path "$output" "$@" >"$output/generate.log" 2>&1 ||
    { what_failed "$output/generate.log"; exit 1; }
replacing "$output/bleu.json" python -m fairseq_xl score bleu "$generated" "$reference" --language "$target" \
    --save "$output/hypotheses.$target"
cat "$output/bleu.json"
