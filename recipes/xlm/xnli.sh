#!/usr/bin/env bash
# xnli.sh RELEASE DATA INIT SAVE_DIR [--config FILE ...] [--flag value ...]: XNLI from its archives to a table of the
# accuracy in each of the 15 languages, fine-tuned on English from a pre-trained XLM (X9, X10). RELEASE is the folder
# with XNLI-1.0.zip and XNLI-MT-1.0.zip, DATA the data folder that INIT was pre-trained on; INIT "random" starts from
# random weights. The authors' search, for each language the best of six settings and of all epochs, is --grid
# 'lr=1e-5,5e-6,2e-6 batch-size=8,16' --best-by-language; without it one setting is trained, and the epoch is that of
# the best validation average over 15 languages, or those of --valid-langs. --pooling max or mean replaces the first
# token. The model has the paper's size; --config recipes/xlm/config/finetune-toy.yaml makes it small. --train-langs de
# trains on German translations of the training text (TRANSLATE-TRAIN), several languages joined by commas on all of
# them. The archives are read into corpora/xnli of the current folder. --predict "--fp16" adds flags to
# fairseq-validate. A repeated run resumes. The rest is as in ../finetune.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments release data init save_dir -- "$@"
shift 4
take train_langs -- "$@"
set -- ${words[@]+"${words[@]}"}
files=corpora/xnli
[ -d "$release" ] || refuse "RELEASE $release: no such folder"
python -m fairseq_xl data read xnli "$release" "$files"
[ "$init" = random ] || set -- "$@" --init-from "$init"
bash "$recipes/finetune.sh" classification "$data" "$save_dir" "$files:$files/translate_train" "${train_langs:-en}" \
    ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh "$@"
