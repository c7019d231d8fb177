#!/usr/bin/env bash
# sweep.sh STUDY DATA OUTPUT TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: which languages to
# fine-tune on; prints a table of accuracies and keeps it in OUTPUT/STUDY.md, a row for each set of training languages
# and a column for each of LANGUAGES. What is complete is not trained again.
#
#   numbers   the first 1, 2, 3 ... of LANGUAGES together (U12; NUMBERS="1 2 6 15" names the numbers)
#   pairs     the first of LANGUAGES, the source, and one other (U13)
#   matrix    each language alone (U14)
#
# TASK_FILES, INIT and CONFIG as for finetune.sh.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$recipes/common.sh"
arguments 6 "$@"
study=$1 data=$2 output=$3 files=$4 languages=$5 init=(--init-from "$6")
[ "$6" != random ] || init=()
shift 6
IFS=, read -ra codes <<<"$languages"
sets=()
case $study in
    numbers)
        for number in ${NUMBERS:-$(seq ${#codes[@]})}; do
            { [ "$number" -ge 1 ] && [ "$number" -le ${#codes[@]} ]; } 2>/dev/null ||
                refuse "NUMBERS: $number of ${#codes[@]} languages"
            sets+=("$(IFS=,; echo "${codes[*]:0:number}")")
        done
        ;;
    pairs) for code in "${codes[@]:1}"; do sets+=("${codes[0]},$code"); done ;;
    matrix) sets=("${codes[@]}") ;;
    *) refuse "$study is none of the studies of --help" ;;
esac
export PYTHONPATH=$recipes/..${PYTHONPATH:+:$PYTHONPATH}
for trained in ${sets[@]+"${sets[@]}"}; do
    folder=$output/$study/${trained//,/-}
    [ -s "$folder/scores.json" ] || bash "$recipes/xlm/classify.sh" "$data" "$folder" "$files:$files/translate_train" \
        "$trained" "$languages" "$recipes/unicoder/config/classify.yaml" "$@" ${init[@]+"${init[@]}"}
done
python "$recipes/unicoder/table.py" "$output/$study" "$languages" ${sets[@]+"${sets[@]}"} | tee "$output/$study.md"
