#!/usr/bin/env bash
# Fine-tunes on a GLUE task with the numbers of config: builds one fairseq-train command, shows it and becomes it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../launch.sh"

usage() {
    cat <<'TEXT'
usage: run.sh TASK DATA_BIN ENCODER_DIR SAVE_DIR [options] [fairseq-train options]
  TASK          sst_2 mrpc qnli; GLUE's spelling (SST-2) will do
  DATA_BIN      what scripts/prepare_glue.py wrote for TASK
  ENCODER_DIR   model.pt and dict.txt: what scripts/convert_hf_checkpoint.py wrote of BERT-base, or fairseq's roberta.base
  SAVE_DIR      for checkpoints; a run that was stopped goes on from its checkpoint_last.pt
options
  --method flooding|auto|standard   flooding needs --flood-level B as well; auto finds it; standard: plain; default: flooding
  --from CHECKPOINT                 start from it, not from ENCODER_DIR/model.pt
  --gpus N                          share the sentences of an update among N GPUs; default: 1
  --dry-run                         show the command only
All further options go to fairseq-train, and win over those of the yaml: --fp16, --seed 2, --accordance-interval 12, …
example: run.sh mrpc MRPC-bin bert-base out/mrpc --flood-level 0.05
TEXT
}

case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 4 ] || { usage >&2; exit 2; }
task=$(tr A-Z- a-z_ <<<"$1") data=$2 encoder=$3 save=$4  # SST-2 is sst_2
shift 4
read_options "$@"
check_glue_data "$data" "$encoder"
launch glue.yaml "$data" "$encoder" "${from:-$encoder/model.pt}" "$save" --glue "$task"
