#!/usr/bin/env bash
# score.sh DATA CHECKPOINT OUTPUT_DIR SOURCE_LANG TARGET_LANG REFERENCE [--flag value ...]: translates the test set with
# fairseq-generate and prints one JSON line: sacreBLEU with signature and interval, tokenised BLEU.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
usage="usage: score.sh DATA CHECKPOINT OUTPUT_DIR SOURCE_LANG TARGET_LANG REFERENCE [--flag value ...]"
data=${1:?$usage} checkpoint=${2:?$usage} output=${3:?$usage} source=${4:?$usage} target=${5:?$usage} reference=${6:?$usage}
shift 6
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
mkdir -p "$output"
python "$recipe/../launch.py" generate "$data" "$recipe/config/generate.yaml" --path "$checkpoint" \
    -s "$source" -t "$target" --results-path "$output" "$@" >"$output/generate.log" 2>&1 ||
    { tail -n 3 "$output/generate.log" >&2; exit 1; }
python -m fairseq_xl.evaluation.bleu "$output/generate-test.txt" "$reference" --language "$target" \
    --save "$output/hypotheses.$target" | tee "$output/bleu.json"
