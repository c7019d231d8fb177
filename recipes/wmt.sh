#!/usr/bin/env bash
# wmt.sh xlm|veco DIRECTIONS DATA CHECKPOINT OUTPUT_DIR [--corpus FOLDER] [--keep-all-pairs] [--keep-diacritics]
# [--back-translate MODEL] [--back-translate-flags "--flag value ..."] [--config FILE ...] [--flag value ...]:
# supervised translation on the text of WMT14 (en-de, en-fr) and WMT16 (en-ro) from an XLM (X13) or VECO (V10, V13)
# checkpoint. Encodes the text with the vocabulary of DATA, the folder that CHECKPOINT was pre-trained on; fine-tunes
# with translate.sh of the system; translates the test set of each direction with beam 5; computes sacreBLEU, chrF and
# tokenized BLEU. The text and the model are written to OUTPUT_DIR, translations and scores to OUTPUT_DIR/DIRECTION. A
# repeated run resumes. An OUTPUT_DIR that was made with other settings, weights or bitext is refused.
#
# DIRECTIONS: one direction (en-de), or several directions for one model (ro-en,en-ro or en-de,de-en,en-fr,fr-en; with
# --sampling-temperature 5 those with few pairs are drawn more often).
# CHECKPOINT: "random" starts from random weights.
# --corpus FOLDER: a corpus folder of fairseq-xl data read wmt for all pairs (default: corpora/wmt-PAIR for each, Romanian
# without diacritics). The reader writes the folder, or completes it. A FOLDER that is complete and lacks a pair is
# refused.
# --keep-all-pairs: train on all pairs of en-fr. By default those with more than 250 words on a side, or with 1.5 times
# as many words on one side as on the other, are left out and counted in OUTPUT_DIR/data-bin/manifest.json.
# --keep-diacritics: Romanian text with diacritics (default folder: corpora/wmt-en-ro-diacritics).
# --back-translate MODEL: translate mono/train.LANGUAGE of the corpus folder out of each target language with MODEL, and
# add the pairs to the training text. Several corpus folders: that of the first direction into LANGUAGE.
# --back-translate-flags FLAGS: flags of fairseq-xl back-translate, such as "--sampling --sampling-topk 10".
# The model has the paper's size; --config recipes/SYSTEM/config/translate-toy.yaml makes it small.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/common.sh"
arguments system directions data checkpoint output_dir -- "$@"
exec python "$root/recipes/wmt.py" "$@"
