#!/usr/bin/env bash
# finetune.sh MODE DATA SAVE_DIR TASK_FILES LANGUAGES INIT [CONFIG.yaml ...] [--flag value ...]: fine-tuning in one of
# the four modes of U8; ends with SAVE_DIR/scores.json, the accuracy in each of LANGUAGES, of which the first is the
# source.
#
#   cross-lingual    trains on the source, tests in every language
#   multi-language   trains on all languages together, tests in every language
#   translate-train  trains a model for each language on that language, and tests it there
#   translate-test   trains on the source, tests on TASK_FILES/translate_test/LANGUAGE, translations into the source
#
# TASK_FILES has SPLIT.LANGUAGE.tsv, and training files translated from the source in TASK_FILES/translate_train. INIT
# is a checkpoint or "random". At paper size without a CONFIG. Run again, it goes on where it stopped; what was made with
# other weights or settings it refuses.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$recipes/common.sh"
arguments 6 "$@"
. "$recipes/unicoder/finetuning.sh"
case $what in
    cross-lingual) needs "$files" "$source" "$languages" ;;
    multi-language | translate-train) needs "$together" "$languages" "$languages" ;;
    translate-test) needs "$files" "$source" "$source" ;;
    *) refuse "MODE $what: one of cross-lingual, multi-language, translate-train, translate-test" ;;
esac
tested=
if [ "$what" = translate-test ]; then
    for language in ${languages//,/ }; do
        translated=$files/translate_test/$language/test.$source.tsv
        [ "$language" = "$source" ] || text_file "$translated" || refuse "$translated: no such file"
    done
    tested=$(settings_of "$files"/translate_test/*)
fi
present
same_settings "$output" "$what $languages $(settings) $tested" SAVE_DIR
done_if_scored "$output"

# What each language's own model, or test set, came to, as one set of scores.
gather() {
    replacing "$output/scores.json" \
        python -m fairseq_xl score classification "$output/predictions" --langs "$languages"
}
case $what in
    cross-lingual) classify "$output" "$files" "$source" "$languages" ;;
    multi-language) classify "$output" "$together" "$languages" "$languages" ;;
    translate-train)
        mkdir -p "$output/predictions"
        for language in ${languages//,/ }; do
            classify "$output/$language" "$together" "$language" "$language"
            cp "$output/$language/predictions/test.$language.tsv" "$output/predictions/"
        done
        gather
        ;;
    translate-test)
        classify "$output" "$files" "$source" "$source"
        for language in ${languages//,/ }; do
            [ "$language" != "$source" ] || continue
            python "$recipes/launch.py" validate "$data" "$recipes/xlm/config/classify-test.yaml" \
                --path "$output/checkpoint_best.pt" --task-files "$files/translate_test/$language" \
                --eval-langs "$source" --predictions-to "$output/$language" >"$output/test.$language.log" 2>&1 ||
                { what_failed "$output/test.$language.log"; exit 1; }
            cp "$output/$language/test.$source.tsv" "$output/predictions/test.$language.tsv"
        done
        gather
        ;;
esac
echo "$output/scores.json"
