#!/usr/bin/env bash
# quickstart.sh [--corpus CONFIG.yaml|libreoffice-help] [--output DIR] [--updates N]
#
# From raw text to BLEU, in minutes on two CPU cores. Pre-trains a small XLM (MLM + TLM), fine-tunes translation from it
# and from random weights with the same settings, translates the test set with both models, and prints their BLEU and
# that of the untranslated source. A repeated run resumes; results of other text, settings or weights are refused.
#
# --corpus   default: the bundled synthetic sample. CONFIG.yaml describes your own corpus (preprocess/README.md); the
#            first bitext pair with a test set is translated. libreoffice-help is real text in English, German and
#            French; apt-get downloads it as packages of Debian or a derivative (preprocess/readers/README.md).
# --output   folder for hypotheses, references, logs and curves (default: runs/quickstart, runs/quickstart-CONFIG, or
#            runs/libreoffice-help)
# --updates  trains every model for N updates only, to try the script
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
corpus="" output=""
updates=()
program=quickstart
. "$root/recipes/common.sh"
while [ $# -gt 0 ]; do
    arguments 0 "$1" # shows help
    case $1 in
        --corpus | --output | --updates) [ -n "${2:-}" ] || refuse "$1 needs a value (quickstart.sh --help)" ;;
        *) refuse "unknown argument $1 (--corpus CONFIG.yaml or libreoffice-help, --output DIR, --updates N)" ;;
    esac
    case $1 in
        --corpus) corpus=$2 ;;
        --output) output=$2 ;;
        --updates) check_number "$1" "$2"; updates=(--max-update "$2") ;;
    esac
    shift 2
done
named=""
[ "$corpus" != libreoffice-help ] || { named=$corpus; corpus=""; }
own=$(basename "${corpus%.*}")
output=${output:-$root/runs/${named:-quickstart${own:+-$own}}}
[ -z "$corpus" ] || [ -f "$corpus" ] || refuse "$corpus: no such file"
[ -z "$corpus" ] || corpus=$(cd "$(dirname "$corpus")" && pwd)/$(basename "$corpus")
mkdir -p "$output" && output=$(cd "$output" && pwd)
cd "$root"

XL_EXTRAS=${XL_EXTRAS:-recipes} . recipes/environment.sh
start=$(date +%s)
step() { printf '\n=== %s (%d s)\n' "$1" $(($(date +%s) - start)); }
# logged LOG COMMAND ...: runs a training, writes its output to LOG and shows its progress. If it fails, shows the error.
logged() {
    local log=$1; shift
    "$@" ${updates[@]+"${updates[@]}"} 2>&1 | python recipes/progress.py "$log" || case $? in
        75) echo "quickstart: stopped; run it again to resume" >&2; exit 75 ;;
        *) what_failed "$log"; echo "quickstart: failed, see $log" >&2; exit 1 ;;
    esac
}

step "1/6 corpus: sub-words, dictionary, binarized text"
if [ -n "$named" ]; then
    python -m preprocess.readers.libreoffice_help corpora/libreoffice-help --langs en,de,fr
    corpus=corpora/libreoffice-help/corpus.yaml
elif [ -z "$corpus" ]; then
    corpus=recipes/sample.yaml
    python -m recipes.corpus corpora/sample
fi
test_set=$(python -m recipes.first_test_set "$corpus" "$output")
IFS=$'\t' read -r source target <<<"$test_set"
python -m preprocess "$corpus" "$output/data-bin"

config=recipes/xlm/config
python -m recipes.settings "$output" $config/pretrain.yaml $config/pretrain-toy.yaml $config/translate.yaml \
    $config/translate-toy.yaml "$output/data-bin/dict.txt" ${updates[@]+"${updates[@]}"}
step "2/6 pre-training: MLM + TLM"
logged "$output/pretrain.log" bash recipes/xlm/pretrain.sh "$output/data-bin" "$output/pretrain" $config/pretrain-toy.yaml
pretrained=$output/pretrain/checkpoint_best.pt

step "3/6 translation $source -> $target from the pre-trained weights"
python -m recipes.settings "$output/pretrained" "$pretrained"
logged "$output/pretrained.log" bash recipes/xlm/translate.sh "$output/data-bin" "$output/pretrained" \
    $config/translate-toy.yaml -s "$source" -t "$target" --init-encoder-from "$pretrained" --init-decoder-from "$pretrained"

step "4/6 translation $source -> $target from random weights"
logged "$output/random.log" bash recipes/xlm/translate.sh "$output/data-bin" "$output/random" \
    $config/translate-toy.yaml -s "$source" -t "$target"

step "5/6 fairseq-generate and BLEU"
for model in pretrained random; do
    bash recipes/xlm/score.sh "$output/data-bin" "$output/$model/checkpoint_best.pt" "$output/$model" \
        "$source" "$target" "$output/reference.$target" >/dev/null # score.sh writes it to bleu.json too
done
python -m fairseq_xl score bleu --plain "$output/pretrained/hypotheses.$target" "$output/reference.$target" \
    --language "$target" --against "$output/random/hypotheses.$target" >"$output/paired.json"
python -m fairseq_xl score bleu --plain "$output/source.$source" "$output/reference.$target" \
    --language "$target" >"$output/copy.json"

step "6/6 curves"
python -m fairseq_xl curves --output "$output/pretraining.png" --metric loss \
    "MLM + TLM=$output/pretrain/train.log"
python -m fairseq_xl curves --output "$output/translation.png" --metric nll_loss \
    "pre-trained=$output/pretrained/train.log" "random=$output/random/train.log"
echo "in $output: the logs pretrain.log, pretrained.log and random.log; pretrained/ and random/ with hypotheses.$target
and bleu.json; reference.$target, paired.json, copy.json; the curves pretraining.png and translation.png"
python -c 'import json, sys; found = json.load(open(sys.argv[1]))["paired"]
print("pretrained - random: %+.2f BLEU, paired bootstrap p = %.3f" % (found["difference"], found["p"]))' "$output/paired.json"
score() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))["sacrebleu"]["score"])' "$1"; }
echo "BLEU pretrained=$(score "$output/pretrained/bleu.json") random=$(score "$output/random/bleu.json") copy=$(score "$output/copy.json")"
