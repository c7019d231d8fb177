#!/usr/bin/env bash
# mine.sh DATA SAVE_DIR [--config FILE ...] [--flag value ...]: hard negatives for paraphrase classification (U5).
# Trains a deep averaging network on random negatives in SAVE_DIR. Writes the negatives that it finds beside the
# training sentence pairs of DATA, and statistics to SAVE_DIR/mined.json. Flags are those of the training. Its
# paraphrase_similarity.length (128) is also the greatest length of negatives. For other options of mining, run
# `fairseq-xl search negatives SAVE_DIR/checkpoint_best.pt DATA`. --config recipes/unicoder/config/dan-toy.yaml makes
# the network small. DATA may be CORPUS.yaml, a description of raw text, which is binarized with fairseq-preprocess in
# SAVE_DIR/data-bin. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments data save_dir -- "$@"
shift 2
from_text
fairseq-train "$data" --user-dir "$package" --config "$recipes/unicoder/config/dan.yaml" "$@" \
    --save-dir "$save_dir" --log-file "$save_dir/train.log"
replacing "$save_dir/mined.json" python -m fairseq_xl search negatives "$save_dir/checkpoint_best.pt" "$data"
