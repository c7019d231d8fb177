#!/usr/bin/env bash
# understanding.sh TASKS SPLIT RELEASE DATA INIT SAVE_DIR [--config FILE ...] [--flag value ...]: XGLUE's understanding
# tasks from the release to scores: fine-tunes an encoder on each task in English, predicts all its languages and writes
# SAVE_DIR/scores.json and a table, SAVE_DIR/table.md (G7, G8). TASKS are names joined by commas, or "all"; SPLIT is
# valid, or test if the release has labels of the test files. RELEASE is the folder xglue_full_dataset, DATA the data
# folder that INIT was pre-trained on; INIT "random" starts from random weights. The model has the size of the paper's
# Unicoder, XLM-R base; --config recipes/xglue/config/understanding-toy.yaml makes it small. --predict "--fp16" adds
# flags to fairseq-validate. A repeated run resumes. understanding.yaml runs the same as an experiment, with a page.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments tasks split release data init save_dir -- "$@"
shift 6
[ "$tasks" != all ] || tasks=NER,POS,NC,MLQA,XNLI,PAWSX,QADSM,WPR,QAM
[[ $split = valid || $split = test ]] || refuse "SPLIT $split: one of valid, test"
take predict -- "$@"
[ "$init" = random ] || words+=(--init-from "$init")
config=$recipes/xglue/config/understanding
python -m fairseq_xl data read xglue "$release" "$save_dir/tasks" --tasks "$tasks"
finetune() { # TASK TYPE LANGUAGES [--config FILE]
    [[ ,$tasks, = *,$1,* ]] || return 0
    bash "$recipes/finetune.sh" "$2" "$data" "$save_dir/$1" "$save_dir/tasks/$1" en "$3" --no-scores \
        --config "$config.yaml" "${@:4}" ${words[@]+"${words[@]}"} --predict "--valid-subset $split $predict"
    python -m fairseq_xl score submission xglue "$1" "$save_dir/$1/predictions" "$save_dir/submission" --split "$split"
}
finetune NER tagging de,en,es,nl
finetune POS tagging pl,ar,ru,bg,de,el,en,es,fr,hi,it,nl,pt,th,tr,ur,vi,zh --config "$config-pos.yaml"
finetune NC classification de,en,es,fr,ru
finetune MLQA question-answering ar,de,en,es,hi,vi,zh --config "$config-mlqa.yaml"
finetune XNLI classification ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh
finetune PAWSX classification de,en,es,fr
finetune QADSM classification de,en,fr
finetune WPR ranking de,en,fr,it,pt,zh --config "$config-wpr.yaml"
finetune QAM classification de,en,fr
python -m fairseq_xl score xglue --predictions "$save_dir/submission" --references "$release" \
    --split "${split/valid/dev}" --tasks "$tasks" --compare G-T4:Unicoder --table "$save_dir/table.md" \
    --output "$save_dir/scores.json"
