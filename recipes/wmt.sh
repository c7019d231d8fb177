#!/usr/bin/env bash
# wmt.sh xlm|veco DIRECTIONS DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [--keep-all-pairs] [--keep-diacritics]
# [--back-translate MODEL] [--back-translate-flags "--flag value ..."] [CONFIG.yaml ...] [--flag value ...]: supervised
# translation on the text of WMT14 (en-de, en-fr) and WMT16 (en-ro) from an XLM (X13) or VECO (V10, V13) checkpoint.
# Encodes the text with the vocabulary of DATA, the folder that CHECKPOINT was pre-trained on; fine-tunes with
# translate.sh of the system; translates the test set of each direction with beam 5; computes sacreBLEU, chrF and
# tokenized BLEU. The text and the model are written to OUTPUT_DIR, translations and scores to OUTPUT_DIR/DIRECTION. A
# repeated run resumes. An OUTPUT_DIR that was made with other settings, weights or bitext is refused.
#
# DIRECTIONS: one direction (en-de), or several directions for one model (ro-en,en-ro or en-de,de-en,en-fr,fr-en; with
# --sampling-temperature 5 those with few pairs are drawn more often).
# CHECKPOINT: "random" starts from random weights.
# --corpus FOLDER: a corpus folder of preprocess.readers.wmt for all pairs (default: corpora/wmt-PAIR for each, Romanian
# without diacritics). The reader writes the folder, or completes it. A FOLDER that is complete and lacks a pair is
# refused.
# --keep-all-pairs: train on all pairs of en-fr. By default those with more than 250 words on a side, or with 1.5 times as
# many words on one side as on the other, are left out and counted in OUTPUT_DIR/data-bin/manifest.json.
# --keep-diacritics: Romanian text with diacritics (default folder: corpora/wmt-en-ro-diacritics).
# --back-translate MODEL: translate mono/train.LANGUAGE of the corpus folder out of each target language with MODEL, and
# add the pairs to the training text. Several corpus folders: that of the first direction into LANGUAGE.
# --back-translate-flags FLAGS: flags of fairseq-xl back-translate, such as "--sampling --sampling-topk 10".
# CONFIG.yaml: the model has the paper's size without any; recipes/SYSTEM/config/translate-toy.yaml has a small model.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/common.sh"
arguments 5 "$@"
system=$1 named=$2 data=$3 checkpoint=$4 output=$5
IFS=, read -ra directions <<<"$named"
shift 5
case $system in
    xlm) given=() model=checkpoint_best.pt; start_from "$checkpoint" ;;
    veco) given=("$checkpoint") model=average.pt start=() ;;  # its translate.sh takes the checkpoint
    *) refuse "$system is neither xlm nor veco" ;;
esac

# among WORD WORDS: succeeds if WORD is one of WORDS, which spaces separate.
among() { [[ " $2 " == *" $1 "* ]]; }

# pair_of DIRECTION: prints its pair, in which English is first.
pair_of() { case $1 in *-en) echo "en-${1%-en}" ;; *) echo "$1" ;; esac; }

# folder_of PAIR: prints the corpus folder of a pair.
folder_of() {
    local folder=$root/corpora/wmt-$1
    [ "$1" != en-ro ] || [ -z "$keep_diacritics" ] || folder+=-diacritics
    echo "${corpus:-$folder}"
}

# has_pair FOLDER PAIR: succeeds if a complete corpus folder has the pair. The reader writes the manifest last.
has_pair() { grep -qsF "\"$2\"" "$1/manifest.json"; }

# is_complete FOLDER PAIR: succeeds if the folder has the pair and, unless it is --corpus, Romanian in the chosen form.
is_complete() {
    has_pair "$1" "$2" || return
    [ "$2" != en-ro ] || [ -n "$corpus" ] || [ "$(form_of "$1")" = "$form" ]
}

# form_of FOLDER: prints whether its Romanian text is "with" or "without" diacritics.
form_of() { if grep -qF '"remove diacritics": true' "$1/manifest.json"; then echo without; else echo with; fi; }

# text_of LANGUAGE: prints the path of the monolingual text of a target language.
text_of() {
    local direction
    for direction in "${directions[@]}"; do
        [ "${direction#*-}" != "$1" ] || { echo "$(folder_of "$(pair_of "$direction")")/mono/train.$1"; return; }
    done
}

pairs='' languages=en targets='' seen=''
for direction in "${directions[@]}"; do
    pair=$(pair_of "$direction")
    among "$pair" "en-de en-fr en-ro" ||
        refuse "DIRECTIONS $named: $direction is not a direction of en-de, en-fr or en-ro"
    ! among "$direction" "$seen" || refuse "DIRECTIONS $named: $direction is named twice"
    seen+=" $direction"
    among "$pair" "$pairs" || { pairs+=" $pair" languages+=" ${pair#en-}"; }
    among "${direction#*-}" "$targets" || targets+=" ${direction#*-}"
done
pairs=${pairs# }
corpus='' keep_diacritics='' back='' back_flags=()
# of en-fr: Moses's clean-corpus-n.perl -ratio 1.5, from 1 to 250 words
clean='{longest: 250, length_ratio: 0, token_ratio: 1.5, copies: false, language: false, duplicates: false}'
among en-fr "$pairs" || clean=
while :; do
    case ${1:-} in
        --corpus) corpus=${2:?--corpus needs a folder} ;;
        --keep-all-pairs)
            among en-fr "$pairs" || refuse "--keep-all-pairs: only en-fr is filtered"
            clean=
            shift
            continue
            ;;
        --keep-diacritics)
            among en-ro "$pairs" || refuse "--keep-diacritics: only Romanian text has them"
            keep_diacritics=yes
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
for file in dict.txt sentencepiece.model; do
    [ -f "$data/$file" ] || refuse "DATA $data: it has no $file"
done
for language in $languages; do check_language "$data" "$language"; done
[ "$checkpoint" = random ] || [ -e "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
form=without
[ -z "$keep_diacritics" ] || form=with
if [ -n "$corpus" ] && [ -f "$corpus/manifest.json" ]; then
    for pair in $pairs; do
        has_pair "$corpus" "$pair" || refuse "--corpus $corpus has no text of $pair: name another folder"
    done
    form=$(form_of "$corpus")
    [ -z "$keep_diacritics" ] || [ "$form" = with ] ||
        refuse "--keep-diacritics: --corpus $corpus has Romanian text without diacritics"
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
if [ -n "$back" ]; then
    [ -f "$back" ] || refuse "--back-translate $back: no such file"
    for language in $targets; do
        text=$(text_of "$language")
        text_file "$text" || refuse "--back-translate needs monolingual text: there is no $text"
        [ "$language $form" != "ro without" ] || python -m preprocess.readers.romanian --check "$text"
    done
fi

manifests=()
for pair in $pairs; do
    folder=$(folder_of "$pair") wanted=$pair options=()
    [ -z "$corpus" ] || wanted=${pairs// /,}
    ! among en-ro "${wanted//,/ }" || [ "$form" = with ] || options=(--remove-diacritics)
    is_complete "$folder" "$pair" ||
        python -m preprocess.readers.wmt "$folder" --pairs "$wanted" ${options[@]+"${options[@]}"}
    among "$folder/manifest.json" "${manifests[*]-}" || manifests+=("$folder/manifest.json")
    [ "$pair" != en-ro ] || echo "wmt.sh: $folder has Romanian text $form diacritics" >&2
done
[ -z "$corpus" ] || corpus=$(cd "$corpus" && pwd)
configs=("$root/recipes/$system/config/translate-$pairs.yaml")  # for one pair
[ -f "${configs[0]}" ] || configs=()
mkdir -p "$output"
python -m recipes.settings "$output" "$system" "$named" "$checkpoint" "$data/dict.txt" \
    "$data/sentencepiece.model" "${manifests[@]}" "$root/recipes/$system/config/translate.yaml" \
    "$root/recipes/xlm/config/generate.yaml" ${clean:+"clean $clean"} ${configs[@]+"${configs[@]}"} "$@" \
    ${back:+--back-translate "$back" ${back_flags[@]+"${back_flags[@]}"}}
{
    echo "languages: [${languages// /, }]"
    echo bitext:
    for pair in $pairs; do
        folder=$(folder_of "$pair")
        echo "  $pair:"
        for split in train valid test; do echo "    $split: '$folder/bitext/$split.$pair'"; done
        [ "$pair" != en-fr ] || [ -z "$clean" ] || echo "    clean: $clean"
    done
    [ -z "$back" ] || echo monolingual:
    for language in ${back:+$targets}; do echo "  $language: {train: '$(text_of "$language")'}"; done
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
    pair=$(pair_of "$direction") scores=$output/$direction
    texts=$(folder_of "$pair")/bitext
    reference=$texts/test.$pair.${direction#*-}
    bash "$root/recipes/xlm/score.sh" "$output/data-bin" "$output/$model" "$scores" "${direction%-*}" \
        "${direction#*-}" "$reference"
    [ "$direction" = en-ro ] || continue
    # The other form of Romanian: the reference with diacritics, or both texts without them.
    if [ "$form" = without ]; then
        other=with hypotheses=$scores/hypotheses.ro reference=$texts/test-diacritics.en-ro.ro
    else
        other=without hypotheses=$scores/hypotheses-without-diacritics.ro
        python -m preprocess.readers.romanian --remove-diacritics <"$scores/hypotheses.ro" >"$hypotheses"
        python -m preprocess.readers.romanian --remove-diacritics <"$reference" >"$scores/reference-without-diacritics.ro"
        reference=$scores/reference-without-diacritics.ro
    fi
    [ ! -f "$reference" ] || python -m fairseq_xl score bleu --plain "$hypotheses" "$reference" --language ro |
        tee "$scores/bleu-$other-diacritics.json"
done
