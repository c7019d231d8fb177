#!/usr/bin/env bash
# wmt14.sh en-de|en-fr DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [CONFIG.yaml ...] [--flag value ...]: WMT14
# translation from a VECO checkpoint (V10, V13). Encodes the shared task's Europarl, Common Crawl and News Commentary
# with the vocabulary of DATA, the folder that CHECKPOINT was pre-trained on; fine-tunes; averages the last checkpoints;
# translates newstest2014 with beam 5; computes BLEU, tokenized and case-insensitive, and sacreBLEU. Everything is
# written to OUTPUT_DIR/PAIR. These three corpora are the complete text of English-German. English-French lacks its two
# largest archives, UN and 10^9, with which the paper's figure (V14) was obtained. Without a CONFIG the model has the
# paper's size; config/translate-toy.yaml is small. --corpus: the corpus folder that preprocess.readers.wmt14 writes
# (default: corpora/wmt14-PAIR). A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/recipes/common.sh"
arguments 4 "$@"
pair=$1 data=$2 checkpoint=$3 output=$4/$1
shift 4
corpus=$root/corpora/wmt14-$pair
[ "${1:-}" != --corpus ] || { corpus=${2:?--corpus needs a folder}; shift 2; }
case $pair in
    en-de) configs=() ;;
    en-fr) configs=("$root/recipes/veco/config/translate-en-fr.yaml") ;;
    *) refuse "$pair is neither en-de nor en-fr" ;;
esac
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
language=${pair#en-}
mkdir -p "$output"

# The manifest is what the reader writes last: a folder that has one with this pair is complete.
grep -qs "\"$pair\"" "$corpus/manifest.json" || python -m preprocess.readers.wmt14 "$corpus" --pairs "$pair"
corpus=$(cd "$corpus" && pwd)
cat >"$output/corpus.yaml" <<YAML
languages: [en, $language]
bitext:
  $pair:
    train: '$corpus/bitext/train.$pair'
    valid: '$corpus/bitext/valid.$pair'
    test: '$corpus/bitext/test.$pair'
YAML
python -m preprocess "$output/corpus.yaml" "$output/data-bin" --spm-model "$data/sentencepiece.model" \
    --dict "$data/dict.txt"
bash "$root/recipes/veco/translate.sh" "$output/data-bin" "$output" "$checkpoint" \
    ${configs[@]+"${configs[@]}"} "$@" -s en -t "$language"
bash "$root/recipes/xlm/score.sh" "$output/data-bin" "$output/average.pt" "$output" en "$language" \
    "$corpus/bitext/test.$pair.$language"
