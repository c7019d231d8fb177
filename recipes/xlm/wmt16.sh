#!/usr/bin/env bash
# wmt16.sh DIRECTION DATA INIT SAVE_DIR [--config FILE ...] [--flag value ...]: translation of WMT16 in one DIRECTION
# (en-ro or ro-en) from the published archives, Europarl v8 and SETIMES 2, to sacreBLEU on newstest2016, from a
# pre-trained XLM (X13). DATA is the data folder that INIT was pre-trained on, whose vocabulary encodes the
# text; INIT "random" starts from random weights. The model has the paper's size; --config
# recipes/xlm/config/translate-toy.yaml makes it small. Romanian text has commas below s and t in place of cedillas, and
# no diacritics, as in X12; the paper does not say it for X13. For en-ro, bleu-with-diacritics.json also compares with
# WMT's own reference. The archives are read into corpora/wmt-en-ro of the current folder. A repeated run resumes.
# recipes/wmt.sh has the paper's other rows: both directions in one model, and with back-translated text.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments direction data init save_dir -- "$@"
shift 4
[[ $direction = en-ro || $direction = ro-en ]] || refuse "DIRECTION $direction: one of en-ro, ro-en"
source=${direction%-*} target=${direction#*-} corpus=corpora/wmt-en-ro pieces=$save_dir/pieces
grep -qs '"remove diacritics": true' "$corpus/manifest.json" ||
    python -m fairseq_xl data read wmt "$corpus" --pairs en-ro --remove-diacritics
python -m fairseq_xl data encode "$corpus/corpus.yaml" "$pieces" --vocabulary-from "$data"
check_older "$pieces" "$save_dir/data-bin/test.$direction.$target.idx"
[ -f "$save_dir/data-bin/test.$direction.$target.idx" ] || printed fairseq-preprocess \
    --source-lang "$source" --target-lang "$target" --srcdict "$pieces/dict.txt" --tgtdict "$pieces/dict.txt" \
    --trainpref "$pieces/train.en-ro" --validpref "$pieces/valid.en-ro" --testpref "$pieces/test.en-ro" \
    --destdir "$save_dir/data-bin" --workers 2
copy_vocabulary "$pieces" "$save_dir/data-bin"
[ "$init" = random ] || set -- "$@" --init-from "$init"
fairseq-train "$save_dir/data-bin" --user-dir "$package" --config "$recipes/xlm/config/translate.yaml" \
    --source-lang "$source" --target-lang "$target" "$@" --save-dir "$save_dir" --log-file "$save_dir/train.log"
fairseq-generate "$save_dir/data-bin" --user-dir "$package" --config "$recipes/xlm/config/generate.yaml" \
    --source-lang "$source" --target-lang "$target" --path "$save_dir/checkpoint_best.pt" --results-path "$save_dir"
python -m fairseq_xl score bleu "$save_dir/generate-test.txt" \
    "$corpus/bitext/test.en-ro.$target" --lang "$target" --output "$save_dir/bleu.json" \
    --save-hypotheses "$save_dir/hypotheses.$target"
[ "$target" = en ] || python -m fairseq_xl score bleu --plain "$save_dir/hypotheses.ro" \
    "$corpus/bitext/test-diacritics.en-ro.ro" --lang ro --output "$save_dir/bleu-with-diacritics.json"
