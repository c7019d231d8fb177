#!/usr/bin/env bash
# generation.sh MODE DATA SAVE_DIR TASK_FILES LANGUAGES INIT [--config FILE ...] [--flag value ...]: fine-tuning for
# titles, questions or summaries in the text's own language; ends with SAVE_DIR/scores.json: BLEU-4, ROUGE-L and the
# share of outputs in a wrong language, in each of LANGUAGES. MODE "pivot" trains on the first of LANGUAGES (G11),
# "multi-language" on all together (G12), one of LANGUAGES on this one; validation text of LANGUAGES, or of
# --valid-langs, selects the checkpoint. TASK_FILES has SPLIT.LANGUAGE.src and .tgt, raw text line by line. INIT is a
# checkpoint of xDAE or xFNP, an encoder's, or "random". The model has the size and settings of the paper's xDAE;
# --config recipes/xglue/config/generation-xfnp.yaml has xFNP's, generation-toy.yaml those of a small model;
# generation-bleu.yaml selects by BLEU, one checkpoint for the language trained on and one for the rest. --generate
# "--lenpen 0.8 --beam 10" has flags of fairseq-generate; --gen-subset valid among them generates the validation set,
# whose scores are in scores-valid.json. If no language has targets of the set, the outputs are not scored. A repeated
# run resumes: it generates only what has no outputs, of another set too. A SAVE_DIR that was made with other weights or
# settings is refused.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
arguments mode data save_dir task_files languages init -- "$@"
shift 6
take generate -- "$@"
set -- ${words[@]+"${words[@]}"}
[[ ,pivot,multi-language,$languages, = *",$mode,"* ]] ||
    refuse "MODE $mode: one of pivot, multi-language${languages:+, ${languages//,/, }}"
configs=$recipes/xglue/config trained=$mode split=test options=" $generate"
[[ ! $options =~ \ --gen-subset[\ =]([^ ]+) ]] || { split=${BASH_REMATCH[1]} options=${options/${BASH_REMATCH[0]}/}; }
end=
[ "$split" = test ] || end=-$split
[ "$mode" != pivot ] || trained=${languages%%,*}
[ "$mode" != multi-language ] || trained=$languages
for language in ${trained//,/ }; do
    text_file "$task_files/train.$language.src" || refuse "$task_files/train.$language.src: no such file"
done
sides=src
for language in ${languages//,/ }; do
    ! text_file "$task_files/$split.$language.tgt" || sides="src tgt"
done
for language in ${languages//,/ }; do
    for side in $sides; do
        text_file "$task_files/$split.$language.$side" || refuse "$task_files/$split.$language.$side: no such file"
    done
done
[ "$init" = random ] || set -- "$@" --init-from "$init"
python -m recipes.settings "$save_dir" "$mode" "$languages" "$init" "$data/dict.txt" "$data/sentencepiece.model" \
    "$task_files" --config "$configs/generation.yaml" "$configs/generate.yaml" "$@" --generate $options
fairseq-train "$data" --user-dir "$package" --config "$configs/generation.yaml" "$@" --task-files "$task_files" \
    --train-langs "$trained" --eval-langs "$languages" --save-dir "$save_dir" --log-file "$save_dir/train.log"
checkpoints=()
for language in ${languages//,/ }; do
    folder=$save_dir/outputs/$language best=$save_dir/checkpoint_best_zero-shot.pt # with --best-by-language
    [ "$language" != "$trained" ] || best=$save_dir/checkpoint_best_$language.pt
    [ -e "$best" ] || best=$save_dir/checkpoint_best.pt
    checkpoints+=("$best")
    [ ! -e "$folder/generate-$split.txt" ] || continue
    rm -rf "$folder.part"
    fairseq-generate "$data" --user-dir "$package" --config "$configs/generate.yaml" --eval-langs "$language" \
        --results-path "$folder.part" --path "$best" --task-files "$task_files" $generate
    mkdir -p "$folder"
    mv "$folder.part"/*.json "$folder.part"/*.txt "$folder"
    rmdir "$folder.part"
done
[ ! -e "$save_dir/checkpoint_best_zero-shot.pt" ] ||
    python -m recipes.best_of_grid join-outputs "$save_dir/outputs" "$split" "${checkpoints[@]}"
[ "$sides" != src ] || { echo "not scored (no targets): $save_dir/outputs"; exit; }
python -m fairseq_xl score generation "$save_dir/outputs" --langs "$languages" --references "$task_files" \
    --split "$split" --output "$save_dir/scores$end.json"
