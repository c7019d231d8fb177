# What finetune.sh and sweep.sh share; sourced by them, which have set $recipes, with their command line.
what=$1 data=$2 output=$3 files=$4 languages=$5 weights=$6
shift 6
[[ $languages =~ ^[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*$ ]] || refuse "LANGUAGES $languages: codes joined by commas, en,de"
source=${languages%%,*} flags=("$@") together=$files:$files/translate_train
[ "$weights" = random ] || flags+=(--init-from "$weights")
export PYTHONPATH=$recipes/..${PYTHONPATH:+:$PYTHONPATH}

# What a classifier depends on, but for its languages, as text for same_settings.
settings() {
    settings_of "$recipes/xlm/config/classify.yaml" "$recipes/unicoder/config/classify.yaml" "$data/dict.txt" \
        "$data/sentencepiece.model" "$files" ${flags[@]+"${flags[@]}"}
    [ ! -d "$files/translate_train" ] || settings_of "$files/translate_train"
}

# there FOLDER:FOLDER SPLIT LANGUAGE,LANGUAGE: stops unless each language's file is in one of the folders.
there() {
    local folder language folders found
    IFS=: read -ra folders <<<"$1"
    [ -d "${folders[0]}" ] || refuse "TASK_FILES ${folders[0]}: no such folder"
    for language in ${3//,/ }; do
        found=
        for folder in "${folders[@]}"; do
            ! text_file "$folder/$2.$language.tsv" || found=yes
        done
        [ -n "$found" ] || refuse "$2.$language.tsv: no such file in ${folders[*]}"
    done
}

# needs FOLDER:FOLDER TRAIN_LANGS EVAL_LANGS: stops unless all is there that `classify` reads hours later.
needs() {
    there "$1" train "$2"
    there "$1" valid "$3"
    there "$1" test "$3"
}

# Stops unless DATA and INIT are there.
present() {
    [ -f "$data/dict.txt" ] || refuse "DATA $data: no folder of binarised text, it has no dict.txt"
    [ "$weights" = random ] || [ -e "$weights" ] || refuse "INIT $weights: no such file"
}

# classify FOLDER TASK_FILES TRAIN_LANGS EVAL_LANGS
classify() {
    bash "$recipes/xlm/classify.sh" "$data" "$@" "$recipes/unicoder/config/classify.yaml" ${flags[@]+"${flags[@]}"}
}
