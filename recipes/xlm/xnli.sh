#!/usr/bin/env bash
# xnli.sh RELEASE DATA INIT SAVE_DIR [--config FILE ...] [--flag value ...]: XNLI from its archives to a table of the
# accuracy in each of the 15 languages, fine-tuned on English from a pre-trained XLM (X9, X10). RELEASE is the folder
# with XNLI-1.0.zip and XNLI-MT-1.0.zip, DATA the data folder that INIT was pre-trained on; INIT "random" starts from
# random weights. The model has the paper's size; --config recipes/xlm/config/finetune-toy.yaml makes it small.
# --train-langs de trains on German translations of the training text (TRANSLATE-TRAIN), several languages joined by
# commas on all of them. The epoch is that of the best validation average over 15 languages, or those of --valid-langs.
# The archives are read into corpora/xnli of the current folder. --predict "--fp16" adds flags to fairseq-validate. A
# repeated run resumes.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments release data init save_dir -- "$@"
shift 4
take predict -- "$@"
set -- ${words[@]+"${words[@]}"}
files=corpora/xnli languages=ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh
python -m fairseq_xl data read xnli "$release" "$files"
[ "$init" = random ] || set -- "$@" --init-from "$init"
fairseq-train "$data" --user-dir "$package" --config "$recipes/xlm/config/finetune.yaml" --train-langs en \
    --eval-langs "$languages" "$@" --task-files "$files:$files/translate_train" --save-dir "$save_dir" \
    --log-file "$save_dir/train.log"
fairseq-validate "$data" --user-dir "$package" --config "$recipes/xlm/config/predict.yaml" \
    --path "$save_dir/checkpoint_best.pt" --task-files "$files" --eval-langs "$languages" \
    --predictions-to "$save_dir/predictions" $predict
python -m fairseq_xl score classification "$save_dir/predictions" --langs "$languages" --output "$save_dir/scores.json"
