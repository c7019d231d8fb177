#!/usr/bin/env bash
# run.sh [OUTPUT_DIR] [--rounds 15] [--device cuda] [--shape layers=12 …]: the MLM training step beside that of fairseq and
# of transformers, in time and memory. Writes benchmark.json, benchmark.png and profile.txt; README.md says what is measured.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/benchmark
. "$root/recipes/common.sh"
arguments 0 "$@"
case ${1:-} in
    "" | -*) ;;
    *) output=$1; shift ;;
esac
mkdir -p "$output" && output=$(cd "$output" && pwd)
cd "$root"
XL_EXTRAS=${XL_EXTRAS:-recipes,hf} . recipes/environment.sh
python -m recipes.benchmark.measure "$output" "$@"
