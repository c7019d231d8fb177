#!/usr/bin/env bash
# multi30k.sh DIRECTION TOK SAVE_DIR [--config FILE ...] [--flag value ...]: translation of Multi30k in one DIRECTION,
# such as en-de, by the protocol of Wu et al. 2021, from published text to BLEU of test 2016. TOK is the folder
# data/task1/tok of https://github.com/multi30k/dataset: lower-cased, tokenized text. BLEU is of such text too. The mean
# of the last ten epochs' checkpoints translates. A repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments direction tok save_dir -- "$@"
shift 3
type -P subword-nmt >/dev/null || refuse "subword-nmt is missing: pip install subword-nmt"
[[ $direction = ??-?? ]] || refuse "DIRECTION $direction: expected one such as en-de"
source=${direction%-*} target=${direction#*-} pieces=$save_dir/pieces
mkdir -p "$pieces"
[ -f "$save_dir/codes" ] || cat "$tok/train.lc.norm.tok."{"$source","$target"} |
    replacing "$save_dir/codes" subword-nmt learn-bpe --symbols 10000 2>"$save_dir/codes.log"
for split in train val test_2016_flickr; do
    for language in "$source" "$target"; do
        replacing "$pieces/$split.$language" \
            subword-nmt apply-bpe --codes "$save_dir/codes" <"$tok/$split.lc.norm.tok.$language"
    done
done
[ -f "$save_dir/data-bin/test.$direction.$target.idx" ] || printed fairseq-preprocess \
    --source-lang "$source" --target-lang "$target" --joined-dictionary --trainpref "$pieces/train" \
    --validpref "$pieces/val" --testpref "$pieces/test_2016_flickr" --destdir "$save_dir/data-bin" --workers 2
fairseq-train "$save_dir/data-bin" --user-dir "$package" --config "$recipes/xlm/config/multi30k.yaml" \
    --source-lang "$source" --target-lang "$target" "$@" --save-dir "$save_dir" --log-file "$save_dir/train.log"
saved=$(find "$save_dir" -maxdepth 1 -name 'checkpoint[0-9]*.pt' | wc -l)
averaged=(--last $((saved < 10 ? saved : 10)) "$save_dir")
[ "$saved" -gt 0 ] || averaged=(--inputs "$save_dir/checkpoint_last.pt") # of an unfinished epoch
python -m fairseq_xl model average "${averaged[@]}" --output "$save_dir/average.pt"
fairseq-generate "$save_dir/data-bin" --user-dir "$package" --config "$recipes/xlm/config/generate.yaml" \
    --source-lang "$source" --target-lang "$target" --path "$save_dir/average.pt" --remove-bpe "@@ " \
    --results-path "$save_dir"
python -m fairseq_xl score bleu "$save_dir/generate-test.txt" "$tok/test_2016_flickr.lc.norm.tok.$target" \
    --tokenize none --output "$save_dir/bleu.json"
