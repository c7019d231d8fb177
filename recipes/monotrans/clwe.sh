#!/usr/bin/env bash
# clwe.sh body DATA SAVE_DIR DIM [CONFIG.yaml ...] [--flag value ...]: a body trained over skip-gram embeddings of the
# first language, which stay as they are (M8: CLWE). DIM is the channels of both, the model's --embed-dim; CONFIG and
# other flags are those of pretrain.sh. Ends with SAVE_DIR/checkpoint_last.pt, which finetune.sh takes.
#
# clwe.sh language-module DATA SAVE_DIR BODY_DIR: embeddings of another language, mapped into those of BODY_DIR, as a
# language module for its body; ends with SAVE_DIR/language-module.pt, which zero-shot.sh takes.
#
# In the environment: SKIPGRAM, flags of fairseq-xl skipgram ("--subsample 1e-3" for little text);
# START=unsupervised, a first dictionary of no identical pieces. Needs gensim: XL_EXTRAS=recipes,embeddings.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 4 "$@"
mode=$1 data=$2 save=$3 given=$4
shift 4
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}
case $mode in
    body) [[ $given =~ ^[1-9][0-9]*$ ]] || refuse "DIM $given: that is no number of channels" ;;
    language-module)
        [ $# -eq 0 ] || refuse "$1: clwe.sh language-module takes no more arguments; SKIPGRAM and START are in the environment"
        case ${START:-identical} in
            identical|unsupervised) ;;
            *) refuse "START=$START: identical or unsupervised" ;;
        esac
        for file in "$given"/{vectors.npz,checkpoint_last.pt}; do
            [ -f "$file" ] || refuse "$file: no such file; BODY_DIR is the SAVE_DIR of clwe.sh body"
        done
        ;;
    *) refuse "$mode: body or language-module" ;;
esac
[ -f "$data/manifest.json" ] || refuse "DATA $data: no folder of python -m preprocess"
language=$(python -c 'import json, sys; print(*json.load(open(sys.argv[1]))["config"]["languages"])' "$data/manifest.json")
[[ $language != *" "* ]] || refuse "$data has text of $language: one language is expected"

init_std='import sys; from fairseq_xl.io.checkpoints import load_checkpoint
print(load_checkpoint(sys.argv[1])["cfg"]["model"]["init_std"])'
channels='import sys; from fairseq_xl.embeddings.vectors import read; print(read(sys.argv[1]).rows.shape[1])'

# shellcheck disable=SC2086 # words of SKIPGRAM are arguments
case $mode in
    body)
        start=$save/start/checkpoint_last.pt
        python -m recipes.settings "$save" "$data/dict.txt" "$data/$language/train.bin" "${SKIPGRAM:-}" \
            "$recipe/config/pretrain.yaml" "$given" "$@"
        [ -f "$save/vectors.npz" ] ||
            python -m fairseq_xl skipgram "$data" "$language" "$save/vectors.npz" --dim "$given" ${SKIPGRAM:-}
        # random weights from one update of size zero: the first language module is made for their body
        [ -f "$start" ] ||
            bash "$recipe/pretrain.sh" "$data" "$save/start" "$@" --embed-dim "$given" --max-update 1 --lr 0
        [ -f "$save/language-module.pt" ] ||
            python -m fairseq_xl language-module from-embeddings "$start" "$data" "$save/vectors.npz" \
                "$save/language-module.pt" --std "$(python -c "$init_std" "$start")"
        bash "$recipe/pretrain.sh" "$data" "$save" "$@" --embed-dim "$given" --init-from "$start" \
            --language-module "$save/language-module.pt" --lang "$language" \
            --train-only 'encoder.token_embeddings.special.*,encoder.token_embeddings.output_bias,encoder.embeddings.*,encoder.layers.*,output.*,heads.*'
        ;;
    language-module)
        body=$given/checkpoint_last.pt
        python -m recipes.settings "$save" "$data/dict.txt" "$data/$language/train.bin" "${SKIPGRAM:-}" \
            "$given/vectors.npz" "$body" "${START:-identical}"
        [ -f "$save/vectors.npz" ] ||
            python -m fairseq_xl skipgram "$data" "$language" "$save/vectors.npz" \
                --dim "$(python -c "$channels" "$given/vectors.npz")" ${SKIPGRAM:-}
        [ -f "$save/mapped.npz" ] || python -m fairseq_xl map-embeddings "$save/vectors.npz" "$given/vectors.npz" \
            "$save/mapped.npz" --start "${START:-identical}"
        python -m fairseq_xl language-module from-embeddings "$body" "$data" "$save/mapped.npz" \
            "$save/language-module.pt" --std "$(python -c "$init_std" "$body")"
        ;;
esac
