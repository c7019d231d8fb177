#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT --config FILE [--config FILE ...] [--flag value ...]: pre-training of Unicoder for
# XGLUE's models for generation, xDAE (G4, G5) and xFNP (G6). The first FILE is the paper's,
# recipes/xglue/config/xdae.yaml or xfnp.yaml; xdae-toy.yaml or xfnp-toy.yaml after it makes the model small. INIT is
# XLM or XLM-R, of this package or published, which initializes encoder and decoder (of an xFNP the encoder only); an
# encoder-decoder to continue; or "random". DATA may be CORPUS.yaml, a description of raw text, which is binarized with
# fairseq-preprocess in SAVE_DIR. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir init -- "$@"
shift 3
from_text
[ "$init" = random ] || set -- "$@" --init-from "$init"
last fairseq-train "$data" --user-dir "$package" "$@" --save-dir "$save_dir" --log-file "$save_dir/train.log"
