# Functions of the recipes' scripts, which source this file.

# refuse SENTENCE: prints an error and ends the script. $program is the name to print (default: the script's).
refuse() {
    echo "${program:-$(basename "$0")}: $1" >&2
    exit 2
}

# arguments NUMBER "$@": if the first argument is -h or --help, prints the comment at the top of the script. With fewer
# than NUMBER arguments, prints that comment up to its first colon, and fails.
arguments() {
    local number=$1 place=0 comment argument words; shift
    comment=$(sed -n -e 1d -e '/^#SBATCH/d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0")
    case ${1:-} in
        -h | --help) echo "$comment"; exit ;;
    esac
    words=${comment#*.sh }  # in a batch system $0 is not the script's name
    read -ra words <<<"${words//$'\n'/ }"
    for argument in ${1+"${@:1:$number}"}; do
        case $argument:${words[$place]-} in
            *.yaml:*.yaml) ;;
            *.yaml:* | --*) break ;;  # an argument before it is missing
        esac
        place=$((place + 1))
        [ -z "$argument" ] || number=$((number - 1))
    done
    [ "$number" -gt 0 ] || return 0
    comment=${comment%%: *}
    echo "usage: ${comment//$'\n'/ }" >&2
    exit 2
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
# array `type_config` to its configurations.
task_type() {
    local configs
    configs=$(dirname "${BASH_SOURCE[0]}")/xlm/config
    task=xl_${1//-/_} suffix=tsv type_config=("$configs/finetune.yaml")
    case $1 in
        classification) ;;
        ranking | tagging | question-answering) type_config+=("$configs/$1.yaml") ;;
        *) refuse "TYPE $1: choose classification, ranking, tagging or question-answering" ;;
    esac
    [ "$1" != question-answering ] || suffix=json
}

# check_files TASK_FILES SPLIT LANGUAGE [SUFFIX]: fails unless TASK_FILES/SPLIT.LANGUAGE.SUFFIX exists (default: tsv).
check_files() { text_file "$1/$2.$3.${4:-tsv}" || refuse "TASK_FILES $1: it has no $2.$3.${4:-tsv}"; }

# take_no_scores "$@": sets the array `words` to the arguments without --no-scores, and `unscored` to it if it is there.
take_no_scores() {
    local word
    words=() unscored=()
    for word; do
        if [ "$word" = --no-scores ]; then unscored=("$word"); else words+=("$word"); fi
    done
}

# setting NAME [CONFIG.yaml ...] [--flag value ...]: prints the value of --NAME: the last one among the flags, or else
# among the files; nothing if none has it.
setting() {
    PYTHONPATH=$(dirname "${BASH_SOURCE[0]}")/..${PYTHONPATH:+:$PYTHONPATH} python -m recipes.finetuning setting "$@"
}

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

# start_from CHECKPOINT: sets the array `start` to the flags that initialize encoder and decoder; it is empty for
# "random".
start_from() {
    start=()
    [ "$1" = random ] || start=(--init-from "$1")
}

# run_training DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: replaces the script by fairseq-train, which then gets
# the script's signals, and also writes the log to SAVE_DIR. $recipe is the script's folder.
run_training() {
    local data=$1 save=$2; shift 2
    mkdir -p "$save"
    exec python "$recipe/../launch.py" train "$data" "$@" --save-dir "$save" --log-file "$save/train.log"
}
