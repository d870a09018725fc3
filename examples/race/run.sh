#!/usr/bin/env bash
# RACE with the numbers of config/race.yaml.
# usage: run.sh DATA ROBERTA_DIR SAVE_DIR [options] [fairseq-train options]
#   DATA          folder of RACE as it is distributed: train, dev and test with middle and high
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../run_task.sh" "$here" config/race.yaml "$@"
