#!/usr/bin/env bash
# wmt.sh xlm|veco DIRECTIONS DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [--back-translate MODEL] [CONFIG.yaml ...]
# [--flag value ...]: supervised translation on the text of WMT14 (en-de; en-fr without UN and 10^9, unlike V14) or
# WMT16 (en-ro) from an XLM (X13) or VECO (V10, V13) checkpoint. DIRECTIONS is one, en-de, or both of a pair in one
# model, ro-en,en-ro. Encodes the text with the vocabulary of DATA, the folder that CHECKPOINT was pre-trained on;
# fine-tunes with translate.sh of the system; translates the test set of each direction with beam 5; computes sacreBLEU
# and tokenized BLEU. CHECKPOINT "random" starts from random weights. The text and the model are written to OUTPUT_DIR,
# translations and scores to OUTPUT_DIR/DIRECTION. Without a CONFIG the model has the paper's size;
# config/translate-toy.yaml of the system is small. A repeated run resumes.
#
# --corpus          the corpus folder that preprocess.readers.wmt writes (default: corpora/wmt-PAIR; Romanian without
#                   diacritics)
# --back-translate  MODEL, which translates in the reverse of DIRECTIONS, generates sources for the monolingual text of
#                   each target language, mono/train.LANGUAGE in the corpus folder; the pairs are added to the training
#                   text
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/common.sh"
arguments 5 "$@"
system=$1 data=$3 checkpoint=$4 output=$5
IFS=, read -ra directions <<<"$2"
shift 5
case $system in
    xlm) given=() model=checkpoint_best.pt; start_from "$checkpoint" ;;
    veco) given=("$checkpoint") model=average.pt start=() ;;  # its translate.sh takes the checkpoint
    *) refuse "$system is neither xlm nor veco" ;;
esac
pair=
for direction in "${directions[@]}"; do
    one=$direction
    [[ $direction != *-en ]] || one=en-${direction%-en}
    [ "${pair:=$one}" = "$one" ] || refuse "$direction and ${directions[0]} are not of one pair"
done
corpus=$root/corpora/wmt-$pair back=
while :; do
    case ${1:-} in
        --corpus) corpus=${2:?--corpus needs a folder} ;;
        --back-translate) back=${2:?--back-translate needs a checkpoint} ;;
        *) break ;;
    esac
    shift 2
done
configs=("$root/recipes/$system/config/translate-$pair.yaml")
[ -f "${configs[0]}" ] || configs=()
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

# The manifest is what the reader writes last: a folder that has one with this pair is complete.
options=()
[ "$pair" != en-ro ] || options=(--remove-diacritics)
grep -qsF "\"$pair\"" "$corpus/manifest.json" ||
    python -m preprocess.readers.wmt "$corpus" --pairs "$pair" ${options[@]+"${options[@]}"}
corpus=$(cd "$corpus" && pwd)
mkdir -p "$output"
{
    cat <<YAML
languages: [${pair/-/, }]
bitext:
  $pair:
    train: '$corpus/bitext/train.$pair'
    valid: '$corpus/bitext/valid.$pair'
    test: '$corpus/bitext/test.$pair'
YAML
    [ -z "$back" ] || echo monolingual:
    for direction in ${back:+"${directions[@]}"}; do
        echo "  ${direction#*-}: {train: '$corpus/mono/train.${direction#*-}'}"
    done
} >"$output/corpus.yaml"
python -m preprocess "$output/corpus.yaml" "$output/data-bin" --spm-model "$data/sentencepiece.model" \
    --dict "$data/dict.txt"
for direction in ${back:+"${directions[@]}"}; do
    python -m fairseq_xl back-translate "$back" "$output/data-bin" -s "${direction%-*}" -t "${direction#*-}"
done
bash "$root/recipes/$system/translate.sh" "$output/data-bin" "$output" ${given[@]+"${given[@]}"} \
    ${configs[@]+"${configs[@]}"} "$@" ${start[@]+"${start[@]}"} ${back:+--back-translated} \
    --lang-pairs "$(IFS=,; echo "${directions[*]}")"
for direction in "${directions[@]}"; do
    bash "$root/recipes/xlm/score.sh" "$output/data-bin" "$output/$model" "$output/$direction" "${direction%-*}" \
        "${direction#*-}" "$corpus/bitext/test.$pair.${direction#*-}"
done
