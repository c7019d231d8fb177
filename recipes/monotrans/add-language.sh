#!/usr/bin/env bash
# add-language.sh DATA SAVE_DIR BODY [--config FILE ...] [--flag value ...]: MonoTrans, step 2: learns the
# language module of another language over the frozen body of the checkpoint BODY, own or published (M1); ends with
# SAVE_DIR/language-module.pt. DATA is text of that language alone. Flags are those of pretrain.sh; --adapters N adds
# adapters (M5). A repeated run resumes; a SAVE_DIR of other weights or settings is refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir body -- "$@"
shift 3
set -- --config "$recipes/monotrans/config/pretrain.yaml" "$@"
python -m recipes.settings "$save_dir" "$data/dict.txt" "$body" "$@"
fairseq-train "$data" --user-dir "$package" "$@" --init-from "$body" --new-language-module \
    --train-only language-module --save-dir "$save_dir" --log-file "$save_dir/train.log"
python -m fairseq_xl model language-module extract "$save_dir/checkpoint_last.pt" "$save_dir/language-module.pt"
