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
# arguments, prints the usage and ends the script; -h also shows the comment on top of it.
arguments() {
    local name names=()
    while [ "$1" != -- ]; do names+=("$1"); shift; done
    shift
    for name in "${names[@]}"; do
        case ${1:-} in
            -h | --help) show_help "${names[@]}" ;;
            "" | -*) usage "${names[@]}" >&2; refuse "$(tr '[:lower:]' '[:upper:]' <<<"$name") is missing; -h shows all" ;;
        esac
        printf -v "$name" %s "$1"
        shift
    done
    case ${1:-} in -h | --help) show_help "${names[@]}" ;; esac
    check_init "$@"
    type -P fairseq-train >/dev/null ||
        refuse "fairseq is missing: \`. recipes/environment.sh\` in the repository prepares and activates the environment"
}
usage() { echo "usage: $(basename "$0") $(tr '[:lower:]' '[:upper:]' <<<"$*") [--config FILE ...] [--flag value ...]"; }
show_help() { usage "$@"; sed -n '1d; /^#/!q; s/^# \{0,1\}//p' "$0"; exit; }

# check_init "$@": fails if a file of --init-from or --init-PART-from among the arguments does not exist.
check_init() {
    local word option=
    for word; do
        case $word in --init-*from=*) option=${word%%=*} word=${word#*=} ;; esac
        case $option in --init-*from) [ -e "$word" ] || refuse "$option $word: no such file or folder, and nothing is downloaded" ;; esac
        option=$word
    done
}

# take NAME ... -- "$@": sets the variables NAME to the values of the options --NAME among the arguments, or to "", and
# `words` to the other arguments. An option that begins with --no- has no value: its variable gets the option's name.
take() {
    local names=" " option
    words=()
    while [ "$1" != -- ]; do names+="$1 "; printf -v "$1" ""; shift; done
    shift
    while [ $# -gt 0 ]; do
        option=${1%%=*} option=${option#--} option=${option//-/_}
        case $names:$1 in
            *" $option "*:--no-*) printf -v "$option" %s "$1" ;;
            *" $option "*:--*=*) printf -v "$option" %s "${1#*=}" ;;
            *" $option "*:--*)
                [ $# -gt 1 ] && [[ $2 != --launch* ]] || refuse "$1 needs a value"
                set -- "$1=$2" "${@:3}"; continue ;;
            *) words+=("$1") ;;
        esac
        shift
    done
}

# fairseq-train ARGUMENTS ..., -validate, -generate: prints and runs the command; fairseq-train in the processes of
# --launch 'COMMAND ...' if that is among the arguments. `last fairseq-train ARGUMENTS ...` replaces the script by it: it
# gets the script's signals. A training that a signal stopped ends the script with 75, as fairseq-train alone does; a
# launcher would report a failure, so that there the mark .stopped in the --save-dir says so.
fairseq-train() {
    local launch words save_dir
    take save_dir -- "$@"
    save_dir=${save_dir:-checkpoints}
    take launch -- "$@"
    [[ $launch = [!-]* || " $*" != *" --launch"* ]] ||
        refuse "--launch needs a command, such as 'torchrun --nproc_per_node 8'"
    check_init "${words[@]}"
    read -ra launch <<<"$launch"
    [ "${launch[0]-}" != torchrun ] || launch=(torchrun --no-python "${launch[@]:1}")
    printed ${launch[@]+"${launch[@]}"} fairseq-train "${words[@]}"
    [ ! -e "$save_dir/.stopped" ] || { echo "$(basename "$0"): stopped: run the same command to resume" >&2; exit 75; }
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
    local corpus=$data pieces=$save_dir/pieces text language pair prefix options split
    data=$save_dir/data-bin
    python -m fairseq_xl data encode "$corpus" "$pieces"
    check_older "$pieces" "$data/dict.txt"
    [ ! -f "$data/dict.txt" ] || return 0  # it is complete
    : >"$save_dir/preprocess.log"
    for text in "$pieces"/train.*; do
        [ -e "$text" ] || refuse "$corpus: no training text, or shards, which fairseq-xl data prepare makes"
        language=${text##*.} pair=${text##*/train.} pair=${pair%".$language"}  # en and en; of a pair, en and en-de
        [[ $pair- = "$language-"* ]] || continue  # the file of the target
        prefix=.$pair options=(--target-lang "${pair#"$language-"}" --tgtdict "$pieces/dict.txt")
        [ "$pair" != "$language" ] || { prefix= && options=(--only-source); }
        for split in train valid test; do
            ! text_file "$pieces/$split$prefix.$language" || options+=("--${split}pref" "$pieces/$split$prefix")
        done
        printed fairseq-preprocess --source-lang "$language" --srcdict "$pieces/dict.txt" "${options[@]}" \
            --destdir "$data" --workers 2 >>"$save_dir/preprocess.log"
    done
    copy_vocabulary "$pieces" "$data"
}

# copy_vocabulary PIECES DATA: copies what `fairseq-xl data encode` wrote beside the text to the binarized text, which
# tasks need for raw text, and to undo the tokenizer; dict.txt last.
copy_vocabulary() {
    local name
    for name in sentencepiece.model xlm.codes xlm.vocab wordpiece.vocab manifest.json dict.txt; do
        [ ! -f "$1/$name" ] || [ -f "$2/$name" ] || cp "$1/$name" "$2"
    done
}

# check_older PIECES FILE: fails if the text in PIECES is newer than FILE, if there is one, which was made from it.
check_older() {
    [ ! -f "$2" ] || [ -z "$(find -L "$1" -maxdepth 1 -name '*.*' ! -name '.*' ! -name 'dict.txt' -newer "$2")" ] ||
        refuse "the text in $1 has changed since ${2%/*} was made: remove ${2%/*}, or name another SAVE_DIR"
}

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

# setting NAME[=DEFAULT] [--config FILE ...] [--flag value ...]: prints the value of --NAME: the last one among the
# flags, or else among the files; otherwise DEFAULT.
setting() { python -m recipes.finetuning setting "$@"; }

# replacing FILE COMMAND ...: replaces FILE by the output of COMMAND if COMMAND succeeds. The output first goes to
# FILE.tmp; a link of that name is removed, not followed.
replacing() {
    local file=$1; shift
    rm -f "$file.tmp"
    (set -o noclobber; "$@" >"$file.tmp") || return
    mv "$file.tmp" "$file"
}

# logged LOG COMMAND ...: runs a command with its output in LOG. If it fails, prints the error that it ended with, or
# else the last lines, and fails.
logged() {
    local log=$1 end
    mkdir -p "${log%/*}"
    "${@:2}" >"$log" 2>&1 && return
    end=$(tail -n 3 "$log")
    [[ $end != *"fairseq_xl: error"* ]] || end="fairseq_xl: error${end#*fairseq_xl: error}"
    echo "$end" >&2
    return 1
}
