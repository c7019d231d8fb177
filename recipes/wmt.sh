#!/usr/bin/env bash
# wmt.sh xlm|veco DIRECTIONS DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [--keep-all-pairs] [--back-translate MODEL]
# [--back-translate-flags "--flag value ..."] [CONFIG.yaml ...] [--flag value ...]: supervised translation on the text
# of WMT14 (en-de, en-fr) or WMT16 (en-ro) from an XLM (X13) or VECO (V10, V13) checkpoint. Encodes the text with the
# vocabulary of DATA, the folder that CHECKPOINT was pre-trained on; fine-tunes with translate.sh of the system;
# translates the test set of each direction with beam 5; computes sacreBLEU, chrF and tokenized BLEU. The text and the
# model are written to OUTPUT_DIR, translations and scores to OUTPUT_DIR/DIRECTION. A repeated run resumes. An
# OUTPUT_DIR that was made with other settings, weights or bitext is refused.
#
# DIRECTIONS: one direction (en-de), or both directions of a pair for one model (ro-en,en-ro).
# CHECKPOINT: "random" starts from random weights.
# --corpus FOLDER: a corpus folder of preprocess.readers.wmt (default: corpora/wmt-PAIR, Romanian without diacritics).
# The reader writes the folder, or completes it. A FOLDER that is complete and lacks the pair is refused.
# --keep-all-pairs: train on all pairs of en-fr. By default those with more than 250 words on a side, or with 1.5 times as
# many words on one side as on the other, are left out and counted in OUTPUT_DIR/data-bin/manifest.json.
# --back-translate MODEL: translate mono/train.LANGUAGE of the corpus folder out of each target language with MODEL, and
# add the pairs to the training text.
# --back-translate-flags FLAGS: flags of fairseq-xl back-translate, such as "--sampling --sampling-topk 10".
# CONFIG.yaml: the model has the paper's size without any; recipes/SYSTEM/config/translate-toy.yaml has a small model.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/common.sh"
arguments 5 "$@"
system=$1 data=$3 checkpoint=$4 output=$5
IFS=, read -ra directions <<<"$2"
named=$(IFS=,; echo "${directions[*]}")
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
    [ "${pair:=$one}" = "$one" ] ||
        refuse "DIRECTIONS $named: expected one pair, such as ro-en,en-ro, not ${directions[0]} and $direction"
done
corpus=$root/corpora/wmt-$pair needed="\"$pair\"" given_corpus= back= back_flags=() clean=
[ "$pair" != en-ro ] || needed='"remove diacritics": true'
# Moses's clean-corpus-n.perl -ratio 1.5, from 1 to 250 words
[ "$pair" != en-fr ] ||
    clean='{longest: 250, length_ratio: 0, token_ratio: 1.5, copies: false, language: false, duplicates: false}'
while :; do
    case ${1:-} in
        --corpus) corpus=${2:?--corpus needs a folder} needed="\"$pair\"" given_corpus=$2 ;;
        --keep-all-pairs)
            [ "$pair" = en-fr ] || refuse "--keep-all-pairs: only en-fr is filtered"
            clean=
            shift
            continue
            ;;
        --back-translate) back=${2:?--back-translate needs a checkpoint} ;;
        --back-translate-flags) read -ra back_flags <<<"${2?--back-translate-flags needs flags}" ;;
        *) break ;;
    esac
    shift 2
done
[ -n "$back" ] || [ ${#back_flags[@]} -eq 0 ] || refuse "--back-translate-flags needs --back-translate MODEL"
configs=("$root/recipes/$system/config/translate-$pair.yaml")
[ -f "${configs[0]}" ] || configs=()
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
if [ -n "$given_corpus" ] && [ -f "$corpus/manifest.json" ] && ! grep -qF "\"$pair\"" "$corpus/manifest.json"; then
    refuse "--corpus $corpus has no text of $pair: name another folder"
fi

# The reader writes the manifest last: a folder that has one with this pair is complete.
options=()
[ "$pair" != en-ro ] || options=(--remove-diacritics)
{ grep -qsF "\"$pair\"" "$corpus/manifest.json" && grep -qF "$needed" "$corpus/manifest.json"; } ||
    python -m preprocess.readers.wmt "$corpus" --pairs "$pair" ${options[@]+"${options[@]}"}
corpus=$(cd "$corpus" && pwd)
if [ "$pair" = en-ro ]; then
    form=with
    ! grep -qF '"remove diacritics": true' "$corpus/manifest.json" || form=without
    echo "wmt.sh: $corpus has Romanian text $form diacritics" >&2
    if [ -n "$back" ] && [ $form = without ] && [[ ,$named, == *-ro,* ]]; then
        python -m preprocess.readers.romanian --check "$corpus/mono/train.ro"
    fi
fi
mkdir -p "$output"
python -m recipes.settings "$output" "$system" "$named" "$checkpoint" "$data/dict.txt" \
    "$data/sentencepiece.model" "$corpus/manifest.json" "$root/recipes/$system/config/translate.yaml" \
    "$root/recipes/xlm/config/generate.yaml" ${clean:+"clean $clean"} ${configs[@]+"${configs[@]}"} "$@" \
    ${back:+--back-translate "$back" ${back_flags[@]+"${back_flags[@]}"}}
{
    cat <<YAML
languages: [${pair/-/, }]
bitext:
  $pair:
    train: '$corpus/bitext/train.$pair'
    valid: '$corpus/bitext/valid.$pair'
    test: '$corpus/bitext/test.$pair'
YAML
    [ -z "$clean" ] || echo "clean: $clean"
    [ -z "$back" ] || echo monolingual:
    for direction in ${back:+"${directions[@]}"}; do
        echo "  ${direction#*-}: {train: '$corpus/mono/train.${direction#*-}'}"
    done
} >"$output/corpus.yaml"
python -m preprocess "$output/corpus.yaml" "$output/data-bin" --spm-model "$data/sentencepiece.model" \
    --dict "$data/dict.txt"
for direction in ${back:+"${directions[@]}"}; do
    python -m fairseq_xl back-translate "$back" "$output/data-bin" -s "${direction%-*}" -t "${direction#*-}" \
        ${back_flags[@]+"${back_flags[@]}"}
done
bash "$root/recipes/$system/translate.sh" "$output/data-bin" "$output" ${given[@]+"${given[@]}"} \
    ${configs[@]+"${configs[@]}"} "$@" ${start[@]+"${start[@]}"} ${back:+--back-translated} \
    --lang-pairs "$named"
for direction in "${directions[@]}"; do
    bash "$root/recipes/xlm/score.sh" "$output/data-bin" "$output/$model" "$output/$direction" "${direction%-*}" \
        "${direction#*-}" "$corpus/bitext/test.$pair.${direction#*-}"
done
