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

# What a language's embeddings depend on but DIM.
sources() { settings_of "$data/dict.txt" "$data/$language/train.bin" "${SKIPGRAM:-}" "$mode" "$@"; }

# skipgram DIM
skipgram() {
    # flags of several words
    [ -f "$save/vectors.npz" ] ||
        python -m fairseq_xl skipgram "$data" "$language" "$save/vectors.npz" --dim "$1" ${SKIPGRAM:-}
}

# std CHECKPOINT: the deviation of its model's random weights
std() { python -c 'import sys; from fairseq_xl.io.checkpoints import load_checkpoint
print(load_checkpoint(sys.argv[1])["cfg"]["model"]["init_std"])' "$1"; }

# make_module CHECKPOINT VECTORS
make_module() { python -m fairseq_xl language-module from-embeddings "$1" "$data" "$2" "$save/language-module.pt" --std "$(std "$1")"; }

case $mode in
    body)
        same_settings "$save" "$(sources "$recipe/config/pretrain.yaml" "$given" "$@")" SAVE_DIR
        skipgram "$given"
        start=$save/start/checkpoint_last.pt
        # one update of size zero: random weights, for whose body the first language module is
        [ -f "$start" ] ||
            bash "$recipe/pretrain.sh" "$data" "$save/start" "$@" --embed-dim "$given" --max-update 1 --lr 0
        [ -f "$save/language-module.pt" ] || make_module "$start" "$save/vectors.npz"
        bash "$recipe/pretrain.sh" "$data" "$save" "$@" --embed-dim "$given" --init-from "$start" \
            --language-module "$save/language-module.pt" --lang "$language" \
            --train-only 'encoder.token_embeddings.special.*,encoder.token_embeddings.output_bias,encoder.embeddings.*,encoder.layers.*,output.*,heads.*'
        ;;
    language-module)
        body=$given/checkpoint_last.pt
        same_settings "$save" "$(sources "$given/vectors.npz" "$body" "${START:-identical}")" SAVE_DIR
        channels=$(python -c 'import sys; from fairseq_xl.embeddings.vectors import read
print(read(sys.argv[1]).rows.shape[1])' "$given/vectors.npz")
        skipgram "$channels"
        [ -f "$save/mapped.npz" ] || python -m fairseq_xl map-embeddings "$save/vectors.npz" "$given/vectors.npz" \
            "$save/mapped.npz" --start "${START:-identical}"
        make_module "$body" "$save/mapped.npz"
        ;;
esac
