#!/usr/bin/env bash
# wmt14.sh en-de|en-fr DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [CONFIG.yaml ...] [--flag value ...]
#
# WMT14 translation from a VECO checkpoint (V10, V13): the official corpora, encoded with the vocabulary of DATA, the
# folder that CHECKPOINT was pre-trained on; fine-tuning; the last checkpoints averaged; beam 5 on newstest2014; BLEU,
# tokenised and case-insensitive, and sacreBLEU. At paper size without a CONFIG; config/translate-toy.yaml makes it small.
# --corpus: the corpus folder that preprocess.readers.wmt14 writes (default: corpora/wmt14). Run again, it goes on where it
# stopped.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
usage="usage: wmt14.sh en-de|en-fr DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [CONFIG.yaml ...] [--flag value ...]"
pair=${1:?$usage} data=${2:?$usage} checkpoint=${3:?$usage} output=${4:?$usage}
shift 4
corpus=$root/corpora/wmt14
[ "${1:-}" != --corpus ] || { corpus=${2:?$usage}; shift 2; }
case $pair in
    en-de) configs=() ;;
    en-fr) configs=("$root/recipes/veco/config/translate-en-fr.yaml") ;;
    *) echo "$usage" >&2; exit 2 ;;
esac
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
language=${pair#en-}
mkdir -p "$output"
[ -f "$corpus/bitext/test.$pair.$language" ] || python -m preprocess.readers.wmt14 "$corpus" --pairs "$pair"
python -m preprocess "$corpus/corpus.yaml" "$output/data-bin" --spm-model "$data/sentencepiece.model" \
    --dict "$data/dict.txt"
bash "$root/recipes/veco/translate.sh" "$output/data-bin" "$output/$pair" "$checkpoint" \
    ${configs[@]+"${configs[@]}"} "$@" -s en -t "$language"
bash "$root/recipes/xlm/score.sh" "$output/data-bin" "$output/$pair/average.pt" "$output/$pair" en "$language" \
    "$corpus/bitext/test.$pair.$language"
