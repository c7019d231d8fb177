#!/usr/bin/env bash
# pretrain.sh DATA SAVE_DIR INIT CONFIG.yaml [CONFIG.yaml ...] [--flag value ...]: pre-training of Unicoder for XGLUE's
# models for generation, xDAE (G4, G5) and xFNP (G6). The first CONFIG is the paper's, config/xdae.yaml or
# config/xfnp.yaml; config/xdae-toy.yaml or config/xfnp-toy.yaml after it is small. INIT is XLM or XLM-R, of this
# package or published, which initializes encoder and decoder (of an xFNP the encoder only); an encoder-decoder to
# continue; or "random". A repeated run resumes.
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipe/../common.sh"
arguments 4 "$@"
data=$1 save=$2 init=(--init-from "$3")
[ "$3" != random ] || init=()
shift 3
run_training "$data" "$save" "$@" ${init[@]+"${init[@]}"}
