# What the recipes' scripts share; sourced by them.

# Ends a script with a sentence; $program is its name for people.
refuse() {
    echo "${program:-$(basename "$0")}: $1" >&2
    exit 2
}

# arguments NUMBER "$@": what the script does, which is the comment at its top, if the first argument is -h or --help;
# with fewer than NUMBER arguments its usage, which is that comment as far as its first colon.
arguments() {
    local number=$1 comment argument; shift
    comment=$(sed -n -e 1d -e '/^#SBATCH/d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$0")
    case ${1:-} in
        -h | --help) echo "$comment"; exit ;;
    esac
    for argument in ${1+"${@:1:$number}"}; do
        [ -z "$argument" ] || number=$((number - 1))
    done
    [ "$number" -gt 0 ] || return 0
    comment=${comment%%: *}
    echo "usage: ${comment//$'\n'/ }" >&2
    exit 2
}

# same_settings FOLDER TEXT: notes in FOLDER what it is made with, and stops if it was made with something else.
same_settings() {
    mkdir -p "$1"
    [ -f "$1/settings" ] || echo "$2" >"$1/settings"
    [ "$(cat "$1/settings")" = "$2" ] ||
        refuse "$1 was made with other settings or weights; remove it or choose another --output"
}
