#!/usr/bin/env bash
# QNLI as pairwise ranking with the numbers of config/qnli_ranking.yaml.
# usage: run.sh DATA ROBERTA_DIR SAVE_DIR [options] [fairseq-train options]
#   DATA          what scripts/prepare_qnli_ranking.py wrote
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../run_task.sh" "$here" config/qnli_ranking.yaml "$@"
