#!/usr/bin/env bash
# clwe.sh DATA SAVE_DIR LANGUAGE VECTORS [--config FILE ...] [--flag value ...]: trains a body over VECTORS, embeddings
# of the pieces of LANGUAGE from `fairseq-xl embeddings skipgram`; they stay as they are (M8: CLWE). Flags are those of
# pretrain.sh; --token-embed-dim N for VECTORS of another number of channels than the model. Ends with
# SAVE_DIR/checkpoint_last.pt, which finetune.sh takes. A repeated run resumes; a SAVE_DIR of other embeddings or
# settings is refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir language vectors -- "$@"
shift 4
check_language "$data" "$language"
[ -f "$vectors" ] || refuse "VECTORS $vectors: no such file"
start=$save_dir/start/checkpoint_last.pt  # random weights: one update of size zero
python -m recipes.settings "$save_dir" "$data/dict.txt" "$vectors" \
    --config "$recipes/monotrans/config/pretrain.yaml" "$@"
[ -f "$start" ] || bash "$recipes/monotrans/pretrain.sh" "$data" "$save_dir/start" "$@" --max-update 1 --lr 0
python -m fairseq_xl model language-module from-embeddings "$start" "$data" "$vectors" "$save_dir/language-module.pt"
exec bash "$recipes/monotrans/pretrain.sh" "$data" "$save_dir" "$@" --init-from "$start" \
    --language-module "$save_dir/language-module.pt" --lang "$language" \
    --train-only 'encoder.token_embeddings.[!t]*,encoder.embeddings.*,encoder.layers.*,output.*,heads.*'
