#!/usr/bin/env bash
# smoke.sh [--output DIR] [--updates N]
#
# MonoTrans in minutes on two cores, on the bundled synthetic sample (smoke.yaml lists the commands). Ends with
#     monotrans zero-shot=<a> majority=<m>
# Both are averages over German and French, languages without any labeled example; majority is the accuracy of the most
# frequent label.
. "$(dirname "${BASH_SOURCE[0]}")/../environment.sh" || exit
exec python -m recipes.experiment recipes/monotrans/smoke.yaml "$@"
