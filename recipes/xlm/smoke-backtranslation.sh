#!/usr/bin/env bash
# smoke-backtranslation.sh [--output DIR] [--updates N]
#
# Back-translation on the bundled synthetic sample in minutes on two cores: a tenth of the parallel text, and German
# text with generated English (smoke-backtranslation.yaml lists the commands). Ends with
#     bt online=<o> with=<a> without=<b>
# which are BLEU of en-de with back-translation while training, with and without the generated pairs, all from the same
# MLM + TLM. Hypotheses, scores and logs stay in DIR (default: runs/xlm-backtranslation). Paths are relative to the
# repository. A repeated run resumes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
. recipes/environment.sh
exec python -m recipes.experiment recipes/xlm/smoke-backtranslation.yaml "$@"
