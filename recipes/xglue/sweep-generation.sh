#!/usr/bin/env bash
# sweep-generation.sh STUDY DATA OUTPUT TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: the paper's
# comparisons of fine-tuning for generation; prints a table of BLEU-4, or of SCORE=rouge_l, and keeps it in
# OUTPUT/STUDY.md, a row for each model and a column for each of LANGUAGES. What is complete is not made again; what was
# made with other weights or settings is refused.
#
#   noise    xDAE pre-trained from INIT with shuffling, dropping and masking of words, with infilling, and with all four,
#            each fine-tuned on the first language (G14); PRETRAIN="CONFIG.yaml --flag value" is laid over its values
#   pivots   each language in turn is what is trained on (G11)
#   modes    the first language alone, and all languages together (G12)
#   each     each language on its own, trained and written
#
# TASK_FILES, INIT, CONFIG and GENERATE as for finetune-generation.sh.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 6 "$@"
study=$1 data=$2 output=$3 files=$4 languages=$5 weights=$6
shift 6
flags=("$@") rows=()
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
IFS=, read -ra codes <<<"$languages"
case $study in
    noise) trained=("${codes[0]}") ;;
    pivots | modes | each) trained=("${codes[@]}") ;;
    *) refuse "STUDY $study: one of noise, pivots, modes, each" ;;
esac
for code in "${trained[@]}"; do
    text_file "$files/train.$code.src" || refuse "$files/train.$code.src: no such file"
done

# fine_tune ROW MODE LANGUAGES INIT
fine_tune() {
    rows+=("$1")
    bash "$recipe/finetune-generation.sh" "$2" "$data" "$output/$study/$1" "$files" "$3" "$4" \
        ${flags[@]+"${flags[@]}"}
}

# pretrain FOLDER NOISE
pretrain() {
    local folder=$1 word values=("$recipe/config/xdae.yaml") more=()
    for word in ${PRETRAIN:-}; do
        case $word in
            *.yaml) values+=("$word") ;;
            *) more+=("$word") ;;
        esac
    done
    same_settings "$folder" "$(settings_of "$weights" "$data/dict.txt" "${values[@]}" ${more[@]+"${more[@]}"}) $2" OUTPUT
    bash "$recipe/pretrain.sh" "$data" "$folder" "$weights" "${values[@]}" ${more[@]+"${more[@]}"} \
        --objective-options "xdae.noise=$2"
}

case $study in
    noise)
        for noise in shuffle+drop+mask infill shuffle+drop+mask+infill; do
            pretrain "$output/xdae/$noise" $noise
            fine_tune $noise pivot "$languages" "$output/xdae/$noise/checkpoint_last.pt"
        done
        ;;
    pivots)
        for pivot in "${codes[@]}"; do
            others=$(for code in "${codes[@]}"; do [ "$code" = "$pivot" ] || printf ",%s" "$code"; done)
            fine_tune "$pivot" pivot "$pivot$others" "$weights"
        done
        ;;
    modes) for mode in pivot multi-language; do fine_tune $mode $mode "$languages" "$weights"; done ;;
    each) for code in "${codes[@]}"; do fine_tune "$code" pivot "$code" "$weights"; done ;;
esac
replacing "$output/$study.md" \
    python -m recipes.xglue.table "$output/$study" "$languages" "${SCORE:-bleu}" "${rows[@]}"
cat "$output/$study.md"
