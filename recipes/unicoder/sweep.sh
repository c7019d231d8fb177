#!/usr/bin/env bash
# sweep.sh STUDY DATA OUTPUT TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: which languages to
# fine-tune on; prints a table of accuracies and keeps it in OUTPUT/STUDY.md, a row for each set of training languages
# and a column for each of LANGUAGES, or of those that EVALUATE="en,de" names. What is complete is not trained again; what
# was made with other weights or settings is refused.
#
#   numbers   the first 1, 2, 3 ... of LANGUAGES together (6 and 15 as in U12; NUMBERS="6 15" names the numbers)
#   pairs     the first of LANGUAGES, the source, and one other (U13)
#   matrix    each language alone (U14)
#
# TASK_FILES, INIT and CONFIG as for finetune.sh.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$recipes/common.sh"
arguments 6 "$@"
. "$recipes/unicoder/finetuning.sh"
evaluate=${EVALUATE:-$languages}
IFS=, read -ra codes <<<"$languages"
sets=()
case $what in
    numbers)
        for number in ${NUMBERS:-$(seq ${#codes[@]})}; do
            { [ "$number" -ge 1 ] && [ "$number" -le ${#codes[@]} ]; } 2>/dev/null ||
                refuse "NUMBERS: $number of ${#codes[@]} languages"
            sets+=("$(IFS=,; echo "${codes[*]:0:number}")")
        done
        ;;
    pairs)
        [ ${#codes[@]} -gt 1 ] || refuse "pairs needs two languages or more, not $languages"
        for code in "${codes[@]:1}"; do sets+=("${codes[0]},$code"); done
        ;;
    matrix) sets=("${codes[@]}") ;;
    *) refuse "STUDY $what: one of numbers, pairs, matrix" ;;
esac
for trained in "${sets[@]}"; do needs "$together" "$trained" "$evaluate"; done
present
depends=$(settings)
for trained in "${sets[@]}"; do
    same_settings "$output/$what/${trained//,/-}" "$trained $evaluate $depends" OUTPUT
done
for trained in "${sets[@]}"; do
    folder=$output/$what/${trained//,/-}
    [ -s "$folder/scores.json" ] || classify "$folder" "$together" "$trained" "$evaluate"
done
replacing "$output/$what.md" python "$recipes/unicoder/table.py" "$output/$what" "$evaluate" "${sets[@]}"
cat "$output/$what.md"
