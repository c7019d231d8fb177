#!/usr/bin/env bash
# finetune.sh DATA SAVE_DIR TASK_FILES LANGUAGE BODY [CONFIG.yaml ...] [--type TYPE] [--flag value ...]: MonoTrans, step
# 3: trains a classifier on LANGUAGE, that of DATA; the language module is frozen (M2, M7); best epoch by its
# validation file. TYPE is that of recipes/finetune.sh (default: classification). BODY is the checkpoint of step 1.
# --embedding-noise 0.075 is M4. At paper size without a CONFIG; config/finetune-toy.yaml makes it small. A repeated run
# resumes; --max-epoch and --max-update may be larger. A SAVE_DIR that was made with other settings or weights is
# refused.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 5 "$@"
data=$1 save=$2 files=$3 language=$4 body=$5 words=() type=classification
shift 5
[ -d "$files" ] || refuse "TASK_FILES $files: no such folder"
while [ $# -gt 0 ]; do
    if [ "$1" = --type ]; then
        type=${2:?--type needs a TYPE}
        shift
    else
        words+=("$1")
    fi
    shift
done
task_type "$type"
configs=("${type_config[@]}" "$recipe/config/finetune.yaml")
case $type in
    tagging | question-answering) configs+=("$recipe/config/without-pooler.yaml") ;;
esac
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
set -- "${configs[@]}" ${words[@]+"${words[@]}"} --init-from "$body"
python -m recipes.settings --may-grow "$save" "$type" "$language" "$data/dict.txt" \
    "$data/sentencepiece.model" "$files" "$@"
exec python "$recipe/../launch.py" train "$data" "$@" --task-files "$files" --lang "$language" \
    --save-dir "$save" --log-file "$save/train.log"
