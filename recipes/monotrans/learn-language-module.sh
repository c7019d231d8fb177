#!/usr/bin/env bash
# learn-language-module.sh DATA SAVE_DIR BODY [CONFIG.yaml ...] [--flag value ...]: MonoTrans, step 2: learns the
# language module of another language over the frozen body of the checkpoint BODY, own or published (M1); ends with
# SAVE_DIR/language-module.pt. DATA is text of that language alone. CONFIG and flags are those of pretrain.sh;
# --adapters N adds adapters (M5). A repeated run resumes; a SAVE_DIR of other weights or settings is refused.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 3 "$@"
data=$1 save=$2 body=$3
shift 3
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
python -m recipes.settings "$save" "$recipe/config/pretrain.yaml" "$data/dict.txt" "$body" "$@"
python "$recipe/../launch.py" train "$data" "$recipe/config/pretrain.yaml" "$@" --init-from "$body" --new-language-module \
    --train-only language-module --save-dir "$save" --log-file "$save/train.log"
python -m fairseq_xl language-module extract "$save/checkpoint_last.pt" "$save/language-module.pt"
