# Functions of the recipes' scripts, which source this file.

recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$(dirname "$recipes")/fairseq_xl  # of --user-dir
export PYTHONPATH=${package%/*}${PYTHONPATH:+:$PYTHONPATH}
# `import fairseq` uses torch.jit.script, which torch 2.15 deprecates
export PYTHONWARNINGS=${PYTHONWARNINGS:+$PYTHONWARNINGS,}'ignore:`torch.jit.script` is deprecated:FutureWarning'

# refuse SENTENCE: prints an error and ends the script. $program is the name to print (default: the script's).
refuse() {
    echo "${program:-$(basename "$0")}: $1" >&2
    exit 2
}

# arguments NAME ... -- "$@": sets the variables NAME to the script's first arguments. With -h or --help, or with fewer
# arguments, prints the usage and ends the script.
arguments() {
    local name names=()
    while [ "$1" != -- ]; do names+=("$1"); shift; done
    shift
    for name in "${names[@]}"; do
        case ${1:-} in
            -h | --help) usage "${names[@]}"; exit ;;
            "" | -*) usage "${names[@]}" >&2; refuse "$(tr '[:lower:]' '[:upper:]' <<<"$name") is missing" ;;
        esac
        printf -v "$name" %s "$1"
        shift
    done
    case ${1:-} in -h | --help) usage "${names[@]}"; exit ;; esac
    type -P fairseq-train >/dev/null ||
        refuse "fairseq is missing: \`. recipes/environment.sh\` in the repository prepares and activates the environment"
}
usage() {
    echo "usage: $(basename "$0") $(tr '[:lower:]' '[:upper:]' <<<"$*") [--config FILE ...] [--flag value ...]"
    echo "$0 describes them."
}

# fairseq-train ARGUMENTS ..., -validate, -generate: prints and runs the command; fairseq-train in the processes of
# --launch 'COMMAND ...' if that is among the arguments. `last fairseq-train ARGUMENTS ...` replaces the script by it: it
# gets the script's signals.
fairseq-train() {
    local words=() launch=()
    while [ $# -gt 0 ]; do
        case $1 in
            --launch=*) read -ra launch <<<"${1#*=}" ;;
            --launch) set -- "$1=${2-}" "${@:3}"; continue ;;
            *) words+=("$1") ;;
        esac
        case $1:${launch[0]-} in
            --launch=*:-* | --launch=*:) refuse "--launch needs a command, such as 'torchrun --nproc_per_node 8'" ;;
            --launch=*:torchrun) launch=(torchrun --no-python "${launch[@]:1}") ;;
        esac
        shift
    done
    printed ${launch[@]+"${launch[@]}"} fairseq-train "${words[@]}"
}
fairseq-validate() { printed fairseq-validate "$@"; }
fairseq-generate() { printed fairseq-generate "$@"; }
last() { last=exec "$@"; }
printed() {
    { printf +; printf ' %q' "$@"; echo; } >&2
    ${last:-} env "$@"  # env runs the program, not the function of that name
}

# from_text: if $data is CORPUS.yaml, a description of raw text (preprocess/README.md), encodes the text as sub-words,
# binarizes it with fairseq-preprocess, and sets $data to the folder, $save_dir/data-bin.
from_text() {
    [[ $data = *.yaml ]] || return 0
    local corpus=$data pieces=$save_dir/pieces text pair language further splits dictionary
    data=$save_dir/data-bin
    [ ! -f "$data/dict.txt" ] || return 0  # it is complete
    python -m fairseq_xl data encode "$corpus" "$pieces"
    for text in "$pieces"/train.*; do
        [ -e "$text" ] || refuse "$corpus: no training text, or shards, which fairseq-xl data prepare makes"
        pair=${text##*/train.} language=${text##*.} further=() splits=() dictionary=(--srcdict "$pieces/dict.txt")
        if [ "$pair" = "$language" ]; then
            further=(--only-source) text=
        elif [[ $pair = "$language-"* ]]; then  # the file of the source, such as train.en-de.en
            pair=${pair%."$language"} text=.$pair
            further=(--target-lang "${pair#"$language-"}") dictionary+=(--tgtdict "$pieces/dict.txt")
        else
            continue
        fi
        for split in valid test; do
            ! text_file "$pieces/$split$text.$language" || splits+=("--${split}pref" "$pieces/$split$text")
        done
        printed fairseq-preprocess --source-lang "$language" "${further[@]}" --trainpref "$pieces/train$text" \
            ${splits[@]+"${splits[@]}"} "${dictionary[@]}" --destdir "$data" --workers 2 >"$save_dir/preprocess.log"
    done
    for text in "$pieces"/{sentencepiece.model,xlm.codes,xlm.vocab,wordpiece.vocab,dict.txt}; do
        [ ! -f "$text" ] || cp "$text" "$data"
    done
}

# check_number OPTION NUMBER: fails unless NUMBER is a whole number above 0.
check_number() { [[ $2 =~ ^[1-9][0-9]*$ ]] || refuse "$1 $2: a whole number above 0 is needed"; }

# check_language DATA LANGUAGE: fails unless the dictionary of the data folder has the language.
check_language() {
    [ -f "$1/dict.txt" ] || refuse "$1/dict.txt: no such file"
    grep -qF "[$2] " "$1/dict.txt" || refuse "$1/dict.txt has no symbol of language '$2'"
}

# text_file PATH: succeeds if the file or a compressed form of it exists.
text_file() { [ -f "$1" ] || [ -f "$1.gz" ] || [ -f "$1.xz" ] || [ -f "$1.zst" ]; }

# task_type TYPE: sets `task` to the fairseq task of a TYPE of fine-tuning, `suffix` to the ending of its files, and the
# array `type_config` to its --config files.
task_type() {
    local configs=$recipes/xlm/config
    task=xl_${1//-/_} suffix=tsv type_config=(--config "$configs/finetune.yaml")
    case $1 in
        classification) ;;
        ranking | tagging | question-answering) type_config+=(--config "$configs/$1.yaml") ;;
        *) refuse "TYPE $1: choose classification, ranking, tagging or question-answering" ;;
    esac
    [ "$1" != question-answering ] || suffix=json
}

# check_files TASK_FILES SPLIT LANGUAGE [SUFFIX]: fails unless TASK_FILES/SPLIT.LANGUAGE.SUFFIX exists (default: tsv).
check_files() { text_file "$1/$2.$3.${4:-tsv}" || refuse "TASK_FILES $1: it has no $2.$3.${4:-tsv}"; }

# take_own_options "$@": sets `words` to the arguments without --no-scores, --predict 'FLAGS' and --generate 'FLAGS',
# which are no flags of fairseq-train, and the arrays `unscored`, `predict` and `generate` to these options.
take_own_options() {
    words=() unscored=() predict=() generate=()
    while [ $# -gt 0 ]; do
        case $1 in
            --no-scores) unscored=("$1") ;;
            --predict=*) read -ra predict <<<"${1#*=}" ;;
            --generate=*) read -ra generate <<<"${1#*=}" ;;
            --predict | --generate) set -- "$1=${2?$1 needs flags}" "${@:3}"; continue ;;
            *) words+=("$1") ;;
        esac
        shift
    done
}

# setting NAME [--config FILE ...] [--flag value ...]: prints the value of --NAME: the last one among the flags, or else
# among the files; nothing if none has it.
setting() { python -m recipes.finetuning setting "$@"; }

# replacing FILE COMMAND ...: replaces FILE by the output of COMMAND if COMMAND succeeds. The output first goes to
# FILE.tmp; a link of that name is removed, not followed.
replacing() {
    local file=$1; shift
    rm -f "$file.tmp"
    (set -o noclobber; "$@" >"$file.tmp") || return
    mv "$file.tmp" "$file"
}

# what_failed LOG: prints the error that a command ended with, or else the last lines of its log.
what_failed() {
    local end
    end=$(tail -n 3 "$1")
    [[ $end != *"fairseq_xl: error"* ]] || end="fairseq_xl: error${end#*fairseq_xl: error}"
    echo "$end" >&2
}

