#!/usr/bin/env bash
# CommonsenseQA with the numbers of config/commonsense_qa.yaml.
# usage: run.sh DATA ROBERTA_DIR SAVE_DIR [options] [fairseq-train options]
#   DATA          folder with the official train_rand_split.jsonl, dev_rand_split.jsonl and test_rand_split_no_answers.jsonl
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../run_task.sh" "$here" config/commonsense_qa.yaml "$@"
