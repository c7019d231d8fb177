#!/usr/bin/env bash
# run.sh [OUTPUT_DIR] [--quick] [--device cuda] [--rounds 15] [--precision bfloat16] [--shape layers=12 …]
# [--unsupervised CHECKPOINT DATA]: measures time and memory of an MLM training step here, with and without --compile,
# in fairseq and in transformers; beam search here and in fairseq; and the share of generation in a step of
# back-translation. Writes benchmark.json, benchmark.png, profile.txt, beam-search.json and back-translation.json.
# README.md describes the measurements.
#
# --deadline SECONDS: measure, but for back-translation, until then (default with --quick --device cuda: 460).
# --quick: 5 counted steps of each system, a small model for the long case of beam search on CPU, and no
# back-translation.
# --unsupervised CHECKPOINT DATA: a model of unsupervised translation and its data folder (default: 3 + 3 x 128 from
# random weights, which is trained by smoke-unmt.yaml of recipes/xlm). Paths are relative to the repository.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
output=$root/runs/benchmark
. "$root/recipes/common.sh"
case ${1:-} in
    -h | --help) echo "usage: run.sh [OUTPUT_DIR] [--flag value ...]: $0 describes them"; exit ;;
    "" | -*) ;;
    *) output=$1; shift ;;
esac
device=cpu quick= rounds=5 deadline= model=() flags=() sizes=()
while [ $# -gt 0 ]; do
    case $1 in
        --unsupervised)
            [ $# -ge 3 ] || refuse "--unsupervised needs CHECKPOINT and DATA"
            model=("$2" "$3")
            shift 2
            ;;
        --device) device=${2:-} flags+=("$1") ;;
        layers=* | embed_dim=* | ffn_dim=* | heads=* | vocabulary=*) flags+=("$1") sizes+=("$1") ;;
        --quick) quick=1 flags+=("$1") ;;
        --deadline)
            [[ ${2:-} =~ ^[0-9]+$ ]] || refuse "--deadline needs a whole number of seconds"
            deadline=$2
            shift
            ;;
        --rounds) rounds=${2:-} flags+=("$1") ;;
        *) flags+=("$1") ;;
    esac
    shift
done
mkdir -p "$output" && output=$(cd "$output" && pwd)
cd "$root"
for file in ${model[@]+"${model[@]}"}; do [ -e "$file" ] || refuse "--unsupervised: $file: no such file or folder"; done
XL_EXTRAS=${XL_EXTRAS:-recipes,hf} . recipes/environment.sh
[ -n "$deadline" ] || [ "$device$quick" != cuda1 ] || deadline=460
left() { echo $(((deadline - SECONDS) * $1 / 100)); } # PERCENT of the time until the deadline
python -m recipes.benchmark.measure "$output" ${flags[@]+"${flags[@]}"} ${deadline:+--deadline "$(left 70)"}
beam_search() { # FILE PRECISION PERCENT
    replacing "$output/$1" python -m recipes.benchmark.beam_search ${quick:+--quick} --rounds "$rounds" \
        --device "$device" --precision "$2" --shape ${sizes[@]+"${sizes[@]}"} ${deadline:+--deadline "$(left "$3")"}
}
[ "$device" = cpu ] || beam_search beam-search-bf16.json bf16 50
beam_search beam-search.json fp32 100
[ -z "$quick" ] || [ ${#model[@]} -gt 0 ] || exit 0
if [ ${#model[@]} -eq 0 ]; then
    python -m recipes.experiment recipes/xlm/smoke-unmt.yaml --only unsupervised/random --output "$output/unsupervised"
    model=("$output/unsupervised/random/checkpoint_last.pt" "$output/unsupervised/data-bin")
fi
replacing "$output/back-translation.json" \
    python -m recipes.benchmark.back_translation "${model[@]}" --max-tokens 2048 --device "$device"
