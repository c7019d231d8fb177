#!/usr/bin/env bash
# quickstart.sh [--corpus CONFIG.yaml|libreoffice-help] [--output DIR] [--updates N]
#
# From raw text to BLEU, in minutes on two CPU cores: pre-training, translation from its weights and from random weights
# with the same settings, and the BLEU of both and of the untranslated source (quickstart.yaml lists the commands). A
# repeated run resumes; results of other text, settings or weights are refused.
#
# --corpus   default: the bundled synthetic sample. CONFIG.yaml describes your own corpus (preprocess/README.md); the
#            first bitext pair with a test set is translated, with longer trainings and an --init-std for random
#            weights that suits real text: half an hour. libreoffice-help is real text in English, German and French;
#            apt-get downloads it as packages of Debian or a derivative (preprocess/readers/README.md).
# --output   folder for hypotheses, references, logs and curves (default: runs/quickstart, runs/quickstart-CONFIG, or
#            runs/libreoffice-help)
# --updates  trains every model for N updates only, to try the script
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/environment.sh"
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec python "$root/recipes/quickstart.py" "$@"
