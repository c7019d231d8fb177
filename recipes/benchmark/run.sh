#!/usr/bin/env bash
# run.sh [OUTPUT_DIR] [--rounds 15] [--device cuda] [--shape layers=12 …]: measures time and memory of an MLM training
# step here, in fairseq and in transformers. Writes benchmark.json, benchmark.png and profile.txt. README.md describes
# the measurement.
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
