# What finetune-generation.sh and denoise.sh share; sourced by them, which have set $recipe, $data, $output, $languages.
export PYTHONPATH=$recipe/../..${PYTHONPATH:+:$PYTHONPATH}

# write LANGUAGE CONFIG FLAG ...: fairseq-generate into $output/outputs/LANGUAGE, if that is not there.
write() {
    local language=$1 config=$2 folder=$output/outputs/$1
    shift 2
    [ ! -d "$folder" ] || return 0
    rm -rf "$folder.part"
    mkdir -p "$folder.part"
    # shellcheck disable=SC2086 # words of GENERATE are arguments
    python "$recipe/../launch.py" generate "$data" "$config" --eval-langs "$language" \
        --results-path "$folder.part" "$@" ${GENERATE:-} >"$output/write.$language.log" 2>&1 ||
        { what_failed "$output/write.$language.log"; exit 1; }
    grep 'WARNING.*fairseq_xl' "$output/write.$language.log" >&2 || true
    mv "$folder.part" "$folder"
}

# score FLAG ...: scores of all that was written.
score() {
    replacing "$output/scores.json" \
        python -m fairseq_xl score generation "$output/outputs" --langs "$languages" "$@"
    echo "$output/scores.json"
}
