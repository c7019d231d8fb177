#!/usr/bin/env bash
# clwe.sh DATA SAVE_DIR LANGUAGE VECTORS [CONFIG.yaml ...] [--flag value ...]: trains a body over VECTORS, embeddings of
# the pieces of LANGUAGE from `fairseq-xl skipgram`; they stay as they are (M8: CLWE). CONFIG and flags are those of
# pretrain.sh: the model needs as many channels as VECTORS (--embed-dim). Ends with SAVE_DIR/checkpoint_last.pt, which
# finetune.sh takes. A repeated run resumes; a SAVE_DIR of other embeddings or settings is refused.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 4 "$@"
data=$1 save=$2 language=$3 vectors=$4
shift 4
check_language "$data" "$language"
[ -f "$vectors" ] || refuse "VECTORS $vectors: no such file"
start=$save/start/checkpoint_last.pt  # random weights from one update of size zero: the language module is for their body
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
python -m recipes.settings "$save" "$recipe/config/pretrain.yaml" "$data/dict.txt" "$vectors" "$@"
[ -f "$start" ] || bash "$recipe/pretrain.sh" "$data" "$save/start" "$@" --max-update 1 --lr 0
python -m fairseq_xl language-module from-embeddings "$start" "$data" "$vectors" "$save/language-module.pt"
exec bash "$recipe/pretrain.sh" "$data" "$save" "$@" --init-from "$start" \
    --language-module "$save/language-module.pt" --lang "$language" \
    --train-only 'encoder.token_embeddings.special.*,encoder.token_embeddings.output_bias,encoder.embeddings.*,encoder.layers.*,output.*,heads.*'
