#!/usr/bin/env bash
# WSC with the numbers of config/wsc.yaml.
# usage: run.sh DATA ROBERTA_DIR SAVE_DIR [options] [fairseq-train options]
#   DATA          what scripts/prepare_wsc.py wrote
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../run_task.sh" "$here" config/wsc.yaml "$@"
