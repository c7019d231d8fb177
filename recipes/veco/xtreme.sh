#!/usr/bin/env bash
# xtreme.sh TASKS DOWNLOAD DATA INIT SAVE_DIR LABELS [--config FILE ...] [--flag value ...]: XTREME's tasks from its
# folder `download` to scores, from VECO (V9, V11): fine-tunes each task on English, finds the translations of BUCC and
# Tatoeba without training, and writes SAVE_DIR/submission. TASKS are names joined by commas, or "all". XTREME keeps the
# labels of its test files secret: with LABELS, a folder in the layout of a submission, scores go to
# SAVE_DIR/scores.json and a table to SAVE_DIR/table.md; "none" leaves them out. DATA is the data folder that INIT was
# pre-trained on. The model has the paper's size; --config recipes/xlm/config/finetune-toy.yaml makes it small, with the
# --arch of INIT. --grid 'lr=1e-5,2e-5,3e-5 max-epoch=3,5,10 batch-size=16,32,64', the paper's (V9), is searched for
# each task but TyDiQA, which has no validation text to select by; without it the middle point is trained. XQuAD is
# validated on SQuAD's dev text, also in the languages into which DOWNLOAD/xtreme_translations has it translated.
# --predict "--fp16" adds flags to fairseq-validate. A repeated run resumes. recipes/xtreme/translate-train-all.yaml
# trains on translations too.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments tasks download data init save_dir labels -- "$@"
shift 6
[ "$tasks" != all ] || tasks=xnli,pawsx,udpos,panx,xquad,mlqa,tydiqa,bucc2018,tatoeba
take grid -- "$@"
ud=af,ar,bg,de,el,en,es,et,eu,fa,fi,fr,he,hi,hu,id,it,ja,ko,mr,nl,pt,ru,ta,te,tr,ur,vi,zh
qa=ar,de,el,en,es,hi,ru,th,tr,vi,zh validated=en flags=(${words[@]+"${words[@]}"}) skip=()
[ ! -d "$download/xtreme_translations" ] || skip=(--skip-invalid)  # some of its lines have no label
[ ! -d "$download/xtreme_translations/SQuAD/translate-dev" ] || validated=$qa
finetune() { # TASK TYPE LANGUAGES [--flag value ...]
    [[ ,$tasks, = *,$1,* ]] || return 0
    python -m fairseq_xl data read xtreme "$download" "$save_dir/tasks/$1" --tasks "$1" ${skip[@]+"${skip[@]}"}
    files=$save_dir/tasks/$1/$1
    bash "$recipes/finetune.sh" "$2" "$data" "$save_dir/$1" "$files:$files/translate_train" en "$3" --no-scores \
        --config "$recipes/veco/config/finetune.yaml" --grid="$grid" "${@:4}" ${flags[@]+"${flags[@]}"} \
        --init-from "$init"
    python -m fairseq_xl score submission xtreme "$1" "$save_dir/$1/predictions" "$save_dir/submission"
}
finetune xnli classification ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh
finetune pawsx classification de,en,es,fr,ja,ko,zh
finetune udpos tagging "$ud,kk,th,tl,yo" --valid-langs "$ud" # the other four have no validation file
finetune panx tagging "$ud,kk,th,tl,yo,bn,jv,ka,ml,ms,my,sw"
finetune xquad question-answering "$qa" --valid-langs "$validated"
finetune mlqa question-answering ar,de,en,es,hi,vi,zh --normalization mlqa
finetune tydiqa question-answering ar,bn,en,fi,id,ko,ru,sw,te --disable-validation --grid=
[[ ,$tasks, != *,bucc2018,* && ,$tasks, != *,tatoeba,* ]] ||
    python -m fairseq_xl search xtreme "$init" "$data" "$download" "$save_dir/submission" --pooling mean
[ "$labels" != none ] || exit 0
python -m fairseq_xl score xtreme --predictions "$save_dir/submission" --references "$labels" --tasks "$tasks" \
    --table "$save_dir/table.md" --output "$save_dir/scores.json"
