# What run.sh and smoke.sh do with a corpus folder; sourced by them from the repository's folder, with
#   corpus   the corpus folder (README.md has its layout)
#   output   where everything goes; $output/data-bin is the binarised text
#   configs  folder of pretrain.yaml, translate.yaml and classify.yaml, laid over the toy or paper values of recipes/xlm
#   updates  flags that follow those of the configurations: (--max-update 5) to try things out, () otherwise
# A model is what translation and classification start from: "random", or objectives joined by "-" (mlm-tlm).
# Everything that is complete is skipped, everything else goes on where it stopped; what was made with other settings or
# from other weights is refused.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# options PROGRAM 'KNOWN ...' "$@": the command line of PROGRAM, which takes the KNOWN of the options below. What is in
# $stages and $models before, and in $more_models, is all that --stages and --models may name.
options() {
    local known=" $2 " all_stages=${stages-} all_models=${models-},${more_models-}
    program=$1; shift 2
    while [ $# -gt 0 ]; do
        arguments 0 "$1"  # shows help
        [[ $known = *" $1 "* ]] || refuse "unknown argument $1 ($(basename "$0") --help)"
        [ -n "${2:-}" ] || refuse "$1 needs a value ($(basename "$0") --help)"
        case $1 in
            --output) output=$2 ;;
            --corpus) [ -d "$2" ] || refuse "--corpus $2: no such folder"; corpus=$(cd "$2" && pwd) ;;
            --langs) languages=$2 ;;
            --targets) targets=$2 ;;
            --models) check_names "$1" "$2" "$all_models"; models=$2 ;;
            --stages) check_names "$1" "$2" "$all_stages"; stages=$2 ;;
            --seeds) check_numbers "$1" "$2"; seeds=$2 ;;
            --pretraining-seed) check_number "$1" "$2"; seeded=(--seed "$2") ;;
            --vocabulary) check_number "$1" "$2"; vocabulary=$2 ;;
            --start) [ -f "$2" ] || refuse "--start $2: no such file"; start=$2 ;;
            --updates) check_updates "$2"; updates=(--max-update "$2") ;;
        esac
        shift 2
    done
    [ -z "$(tr , '\n' <<<"${languages-}" | sort | uniq -d)" ] || refuse "--langs $languages: one is named twice"
    mkdir -p "$output" && output=$(cd "$output" && pwd)
    check_languages
}

# check_names OPTION NAME,NAME NAME,NAME: stops unless the first names are all among the second.
check_names() {
    local name all=${3%,}
    for name in ${2//,/ }; do
        case ",$all," in *",$name,"*) ;; *) refuse "$1 $name: choose among ${all//,/ }" ;; esac
    done
}

# Stops if text that is binarised already, and stays as it is, lacks a language.
check_languages() {
    local language names=${languages-}
    [ -d "$output/data-bin" ] && ! chosen data || return 0
    for language in ${names//,/ }; do
        [ -d "$output/data-bin/$language" ] || refuse "--langs $language: there is no such text in $output/data-bin"
    done
}

# Whether a stage is among $stages.
chosen() { case ",${stages-}," in *",$1,"*) ;; *) return 1 ;; esac; }

# The corpus, binarised.
prepare() {
    fetch_corpus "$languages"
    corpus_description "$languages" "$vocabulary" >"$output/corpus.yaml"
    python -m preprocess "$output/corpus.yaml" "$output/data-bin"
}

# Where a model's weights are; nothing for random ones.
pretrained() { [ "$1" = random ] || echo "$output/$1/checkpoint_last.pt"; }

# doing=NAME logged LOG COMMAND: shows the minutes and seconds so far and a step's name, adds the command's output to a
# log, and shows the end of it if it fails; a training that was stopped ends everything, since what follows needs all of
# it.
logged() {
    local log=$1 status=0 lines; shift
    mkdir -p "$(dirname "$log")"
    touch "$log"
    lines=$(wc -l <"$log")
    printf -- '--- %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "${doing:+$doing: }$log" >&2
    "$@" >>"$log" 2>&1 || status=$?
    case $status in
        0) ;;
        75) echo "$log: stopped; run it again to go on" >&2; exit 75 ;;
        *) what_failed "$log" "$lines"; echo "failed, see $log" >&2; exit 1 ;;
    esac
}

# fetch_corpus LANG,LANG [mono|bitext]: the distribution's packages, into the default folder only and if it is not there;
# another folder must have this kind of text, by default bitext with the first language.
fetch_corpus() {
    local first=${1%%,*} language file
    if [ "$corpus" = "$PWD/corpora/lohelp" ] && { [ ! -e "$corpus" ] || [ -f "$corpus/manifest.json" ]; }; then
        python -m preprocess.readers.libreoffice_help "$corpus" --langs "$1"
    else
        for language in ${1//,/ }; do
            file=mono/train.$language
            if [ "${2:-bitext}" = bitext ]; then
                [ "$language" != "$first" ] || continue
                file=bitext/train.$first-$language.$language
            fi
            [ -f "$corpus/$file" ] || refuse "$corpus is no corpus of $1: it has no $file"
        done
    fi
}

# What a model's weights are, as part of the text that same_settings compares.
weights_of() {
    local weights
    weights=$(pretrained "$1")
    if [ -z "$weights" ]; then echo random; else cksum <"$weights"; fi
}

# corpus_description LANG,LANG SIZE: what `python -m preprocess` reads, on standard output; pairs are with the first.
corpus_description() {
    local language pair languages=${1//,/ } first=${1%%,*} text=$corpus/bitext
    echo "languages: [${1//,/, }]"
    echo "vocabulary: {model: unigram, size: $2, alpha: 0.5}"
    echo "monolingual:"
    for language in $languages; do
        echo "  $language: {train: '$corpus/mono/train.$language', valid: '$corpus/mono/valid.$language'}"
    done
    echo "bitext:"
    for language in $languages; do
        pair=$first-$language
        [ "$language" = "$first" ] ||
            echo "  $pair: {train: '$text/train.$pair', valid: '$text/valid.$pair', test: '$text/test.$pair'}"
    done
}

# pretrain MODEL
pretrain() {
    same_settings "$output/$1" "$(cat "$configs/pretrain.yaml") ${updates[*]-}"
    doing="pre-training $1" logged "$output/$1/out.log" bash recipes/xlm/pretrain.sh "$output/data-bin" "$output/$1" \
        "$configs/pretrain.yaml" --objectives "${1//-/,}" ${updates[@]+"${updates[@]}"}
}

# translate MODEL[:first|:last] SOURCE TARGET [--flag value ...]: trains, translates the test set; flags are for
# fairseq-generate. With :first or :last the decoder takes those layers of a deeper model.
translate() {
    local weights save="$output/${1/:/-}/$2-$3" initialisation=() model=$1 source=$2 target=$3; shift 3
    weights=$(pretrained "${model%%:*}")
    [ -z "$weights" ] || initialisation=(--init-encoder-from "$weights" --init-decoder-from "$weights")
    [[ $model != *:* ]] || initialisation+=(--init-decoder-layers "${model##*:}")
    same_settings "$save" "$(cat "$configs/translate.yaml") ${updates[*]-} $* $(weights_of "${model%%:*}")"
    [ -s "$save/bleu.json" ] && return
    doing="translation $source-$target from $model" logged "$save/out.log" bash recipes/xlm/translate.sh \
        "$output/data-bin" "$save" "$configs/translate.yaml" -s "$source" -t "$target" \
        ${initialisation[@]+"${initialisation[@]}"} ${updates[@]+"${updates[@]}"}
    echo "--- test set of $source-$target, from $model: $save/bleu.json" >&2
    bash recipes/xlm/score.sh "$output/data-bin" "$save/checkpoint_last.pt" "$save" "$source" "$target" \
        "$corpus/bitext/test.$source-$target.$target" "$@" >/dev/null
}

# classify MODEL TASK LANG,LANG SEED: trains in the first language, tests in all.
classify() {
    local weights save="$output/$1/$2-$4" initialisation=()
    same_settings "$save" "$(cat "$configs/classify-$2.yaml") ${updates[*]-} $3 $(weights_of "$1")"
    [ -s "$save/scores.json" ] && return
    weights=$(pretrained "$1")
    [ -z "$weights" ] || initialisation=(--init-from "$weights")
    doing="classification $2 from $1, seed $4" logged "$save/out.log" bash recipes/xlm/classify.sh \
        "$output/data-bin" "$save" "$corpus/tasks/$2" "${3%%,*}" "$3" recipes/xlm/config/classify-toy.yaml \
        "$configs/classify-$2.yaml" --seed "$4" ${initialisation[@]+"${initialisation[@]}"} ${updates[@]+"${updates[@]}"}
}

# retrieve MODEL LANG,LANG: from the first language to each other one and back; layer and pooling chosen on valid pairs.
retrieve() {
    local language first=${2%%,*} dev=() test=() weights save="$output/$1/retrieval"
    same_settings "$save" "$2 $(weights_of "$1")"
    [ -s "$save/scores.json" ] && return
    for language in ${2//,/ }; do
        [ "$language" = "$first" ] && continue
        dev+=("$first-$language=$corpus/bitext/valid.$first-$language")
        test+=("$first-$language=$corpus/tasks/retrieval/$first-$language")
    done
    weights=$(pretrained "$1")
    if [ -z "$weights" ]; then
        weights=$output/$1/untrained/checkpoint_last.pt  # one update of size zero
        [ -f "$weights" ] || doing="untrained weights" logged "$output/$1/untrained/out.log" \
            bash recipes/xlm/pretrain.sh "$output/data-bin" "$output/$1/untrained" "$configs/pretrain.yaml" \
            --objectives mlm --max-update 1 --lr 0 --warmup-updates 1
    fi
    echo "--- retrieval with $1: $save/scores.json" >&2
    replacing "$save/scores.json" python -m fairseq_xl retrieve "$weights" "$output/data-bin" --dev "${dev[@]}" \
        --test "${test[@]}" 2>"$save/out.log" || { what_failed "$save/out.log"; exit 1; }
}

# copy_baseline SOURCE TARGET
copy_baseline() {
    [ -s "$output/copy.$1-$2.json" ] && return
    python -m fairseq_xl score bleu --plain "$corpus/bitext/test.$1-$2.$1" "$corpus/bitext/test.$1-$2.$2" \
        --language "$2" >"$output/copy.$1-$2.json"
}

# curves NAME METRIC LOG: one picture of a log that every model may have, $output/MODEL/LOG.
curves() {
    local model runs=()
    for model in ${models//,/ }; do
        [ ! -f "$output/$model/$3" ] || runs+=("$model=$output/$model/$3")
    done
    [ ${#runs[@]} -eq 0 ] ||
        python -m fairseq_xl curves --output "$output/$1.png" --metric "$2" "${runs[@]}"
}
