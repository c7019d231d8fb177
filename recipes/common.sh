# What the recipes' scripts share; sourced by them.

# Ends a script with a sentence; $program is its name for people.
refuse() {
    echo "${program:-$(basename "$0")}: $1" >&2
    exit 2
}

# arguments NUMBER "$@": what the script does, which is the comment at its top, if the first argument is -h or --help;
# with fewer than NUMBER arguments its usage, which is that comment as far as its first colon.
arguments() {
    local number=$1 place=0 comment argument words; shift
    comment=$(sed -n -e 1d -e '/^#SBATCH/d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0")
    case ${1:-} in
        -h | --help) echo "$comment"; exit ;;
    esac
    words=${comment#*.sh }  # the script's name, which isn't $0 in a batch system
    read -ra words <<<"${words//$'\n'/ }"
    for argument in ${1+"${@:1:$number}"}; do
        case $argument:${words[$place]-} in
            *.yaml:*.yaml) ;;
            *.yaml:* | --*) break ;;  # one before it is left out
        esac
        place=$((place + 1))
        [ -z "$argument" ] || number=$((number - 1))
    done
    [ "$number" -gt 0 ] || return 0
    comment=${comment%%: *}
    echo "usage: ${comment//$'\n'/ }" >&2
    exit 2
}

# same_settings FOLDER TEXT [NAME]: notes in FOLDER what it is made with, and stops if it was made with something else;
# NAME is what people call the folder in the command line. An attempt that left nothing but logs does not count.
same_settings() {
    mkdir -p "$1"
    if [ ! -f "$1/settings" ] || [ -z "$(find "$1" -type f ! -name settings ! -name '*.log' ! -name .lock -print -quit)" ]; then
        echo "$2" >"$1/settings"
    fi
    [ "$(cat "$1/settings")" = "$2" ] ||
        refuse "$1 was made with other settings or weights; remove it or choose another ${3:---output}"
}

# check_number OPTION NUMBER: stops unless it is one, a whole one above 0.
check_number() { [[ $2 =~ ^[1-9][0-9]*$ ]] || refuse "$1 $2: a whole number above 0 is needed"; }

# check_numbers OPTION NUMBER,NUMBER: likewise for several.
check_numbers() {
    [[ $2 =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || refuse "$1 $2: whole numbers above 0 are needed, joined by commas"
}

# check_updates NUMBER: stops unless it is one; fairseq would take 0 for no limit.
check_updates() {
    [[ $1 =~ ^[1-9][0-9]*$ ]] || refuse "--updates $1: that is no number of updates"
}

# settings_of ARGUMENT ...: a line for each argument as text for same_settings: what is in a file or in the files of a
# folder, as a number, else the argument itself.
settings_of() {
    local argument file
    for argument; do
        if [ -f "$argument" ]; then
            cksum <"$argument"
        elif [ -d "$argument" ]; then
            for file in "$argument"/*; do [ ! -f "$file" ] || cat "$file"; done | cksum
        else
            printf '%s\n' "$argument"
        fi
    done
}

# check_language DATA LANGUAGE: stops unless the folder's dictionary has the language.
check_language() {
    [ -f "$1/dict.txt" ] || refuse "$1/dict.txt: no such file"
    grep -qF "[$2] " "$1/dict.txt" || refuse "$1/dict.txt has no symbol of language '$2'"
}

# text_file PATH: is there that file, or a compressed one in its place?
text_file() { [ -f "$1" ] || [ -f "$1.gz" ] || [ -f "$1.xz" ] || [ -f "$1.zst" ]; }

# check_files TASK_FILES SPLIT LANGUAGE: stops unless there is that file.
check_files() { text_file "$1/$2.$3.tsv" || refuse "TASK_FILES $1: it has no $2.$3.tsv"; }

# replacing FILE COMMAND ...: what COMMAND prints takes the place of FILE, if it succeeds. FILE.tmp is written beside it;
# a link of that name is removed and not followed.
replacing() {
    local file=$1; shift
    rm -f "$file.tmp"
    (set -o noclobber; "$@" >"$file.tmp") || return
    mv "$file.tmp" "$file"
}

# done_if_scored FOLDER: ends the script, says so, if the scores that it would make are there.
done_if_scored() {
    [ -s "$1/scores.json" ] || return 0
    echo "$1/scores.json is there already"
    exit
}

# what_failed LOG [LINES]: shows the sentence that a command ended with, or else the end of its log; LINES at the log's
# beginning are of earlier commands.
what_failed() {
    local end
    end=$(tail -n "+$((${2:-0} + 1))" "$1" | tail -n 3)
    [[ $end != *"fairseq_xl: error"* ]] || end="fairseq_xl: error${end#*fairseq_xl: error}"
    echo "$end" >&2
}

# run_training DATA SAVE_DIR [CONFIG.yaml ...] [--flag value ...]: fairseq-train, its log in SAVE_DIR too, in this
# script's place, so that signals to it are the training's; $recipe is the script's folder.
run_training() {
    local data=$1 save=$2; shift 2
    mkdir -p "$save"
    exec python "$recipe/../launch.py" train "$data" "$@" --save-dir "$save" --log-file "$save/train.log"
}

# The bundled sample in corpora/sample, whole; one without the latest of its tasks is written anew.
sample_corpus() {
    [ ! -f corpora/sample/COMPLETE ] || [ ! -d corpora/sample/tasks/form ] || return 0
    rm -f corpora/sample/COMPLETE
    python -m preprocess.sample corpora/sample
    touch corpora/sample/COMPLETE
}
