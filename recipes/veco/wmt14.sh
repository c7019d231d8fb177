#!/usr/bin/env bash
# wmt14.sh DIRECTION DATA INIT SAVE_DIR [--config FILE ...] [--flag value ...]: translation of WMT14 in one DIRECTION
# (en-de, de-en, en-fr or fr-en) from the published archives to sacreBLEU, from VECO (V10, V13). DATA is the data folder
# that INIT was pre-trained on, whose vocabulary encodes the text; INIT "random" starts from random
# weights. The model has the paper's size; --config recipes/veco/config/translate-toy.yaml makes it small. The archives
# are read into corpora/wmt-PAIR of the current folder. A repeated run resumes. recipes/wmt.sh trains several directions
# in one model, on back-translated text too.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments direction data init save_dir -- "$@"
shift 4
case $direction in
    en-de | de-en) pair=en-de ;;
    en-fr | fr-en) pair=en-fr ;;
    *) refuse "DIRECTION $direction: one of en-de, de-en, en-fr, fr-en" ;;
esac
source=${direction%-*} target=${direction#*-} corpus=corpora/wmt-$pair pieces=$save_dir/pieces
[ -f "$corpus/manifest.json" ] || python -m fairseq_xl data read wmt "$corpus" --pairs "$pair"
python -m fairseq_xl data encode "$corpus/corpus.yaml" "$pieces" --vocabulary-from "$data"
check_older "$pieces" "$save_dir/data-bin/test.$direction.$target.idx"
[ -f "$save_dir/data-bin/test.$direction.$target.idx" ] || printed fairseq-preprocess \
    --source-lang "$source" --target-lang "$target" --srcdict "$pieces/dict.txt" --tgtdict "$pieces/dict.txt" \
    --trainpref "$pieces/train.$pair" --validpref "$pieces/valid.$pair" --testpref "$pieces/test.$pair" \
    --destdir "$save_dir/data-bin" --workers 2
copy_vocabulary "$pieces" "$save_dir/data-bin"
[ "$init" = random ] || set -- "$@" --init-from "$init"
[ "$pair" = en-de ] || set -- --config "$recipes/veco/config/translate-en-fr.yaml" "$@"
fairseq-train "$save_dir/data-bin" --user-dir "$package" --config "$recipes/veco/config/translate.yaml" \
    --source-lang "$source" --target-lang "$target" "$@" --save-dir "$save_dir" --log-file "$save_dir/train.log"
saved=$(find "$save_dir" -maxdepth 1 -name 'checkpoint_[0-9]*_[0-9]*.pt' | wc -l) # of --save-interval-updates
averaged=(--last $((saved < 10 ? saved : 10)) "$save_dir" --updates)
[ "$saved" -gt 0 ] || averaged=(--inputs "$save_dir/checkpoint_last.pt")
python -m fairseq_xl model average "${averaged[@]}" --output "$save_dir/average.pt"
fairseq-generate "$save_dir/data-bin" --user-dir "$package" --config "$recipes/xlm/config/generate.yaml" \
    --source-lang "$source" --target-lang "$target" --path "$save_dir/average.pt" --results-path "$save_dir"
python -m fairseq_xl score bleu "$save_dir/generate-test.txt" \
    "$corpus/bitext/test.$pair.$target" --lang "$target" --output "$save_dir/bleu.json" \
    --save-hypotheses "$save_dir/hypotheses.$target"
