#!/usr/bin/env bash
# zero-shot.sh CHECKPOINT OUTPUT TASK_FILES LANGUAGE=DATA[:MODULE] ... [--split valid]: MonoTrans, step 4: tests the
# classifier CHECKPOINT in every LANGUAGE with that language's language module in place of its own (M1); ends with
# OUTPUT/scores.json. DATA is the folder with the language's dictionary and sub-words; without a MODULE the
# checkpoint's own is used. --split: valid or test (default: test).
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 4 "$@"
checkpoint=$1 output=$2 files=$3 languages= split=test
shift 3
[ "${*: -2:1}" != --split ] || { split=${*: -1}; set -- "${@:1:$#-2}"; }
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
[ -f "$checkpoint" ] || refuse "CHECKPOINT $checkpoint: no such file"
[ -d "$files" ] || refuse "TASK_FILES $files: no such folder"
for argument; do
    [[ $argument =~ ^[^=]+=[^:]+(:.+)?$ ]] || refuse "$argument: expected LANGUAGE=DATA or LANGUAGE=DATA:MODULE"
    [[ $argument != *:* ]] || [ -f "${argument#*:}" ] || refuse "$argument: there is no MODULE ${argument#*:}"
    [[ ,$languages, != *,${argument%%=*},* ]] || refuse "$argument: ${argument%%=*} is named twice"
    languages+=${languages:+,}${argument%%=*}
done
mkdir -p "$output"
for argument; do
    language=${argument%%=*} data=${argument#*=} module=()
    log=$output/$split.$language.log
    if [[ $data = *:* ]]; then module=(--language-module "${data#*:}"); fi
    if ! python "$recipe/../launch.py" validate "${data%%:*}" "$recipe/../xlm/config/classify-test.yaml" \
        --valid-subset "$split" --path "$checkpoint" --task-files "$files" --lang "$language" \
        ${module[@]+"${module[@]}"} --predictions-to "$output/predictions" >"$log" 2>&1; then
        what_failed "$log"
        ! grep -q '^fairseq_xl: error.*trained with --task xl_pretraining' "$log" ||
            echo "CHECKPOINT $checkpoint is a pre-trained model, not a classifier of finetune.sh" >&2
        [ ${#module[@]} -gt 0 ] || ! grep -q 'with another dictionary' "$log" || echo "$argument: it has no MODULE" >&2
        exit 1
    fi
done
replacing "$output/scores.json" \
    python -m fairseq_xl score classification "$output/predictions" --split "$split" --langs "$languages"
echo "$output/scores.json"
