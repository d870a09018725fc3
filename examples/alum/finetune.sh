#!/usr/bin/env bash
# Fine-tunes on a GLUE task with the numbers of config/finetune: builds one fairseq-train command, shows it and becomes it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../launch.sh"

usage() {
    cat <<'TEXT'
usage: finetune.sh TASK DATA_BIN ENCODER_DIR SAVE_DIR [options] [fairseq-train options]
  TASK          cola mnli mrpc qnli qqp rte sst_2 sts_b; GLUE's spelling (SST-2) will do
  DATA_BIN      what scripts/prepare_glue.py wrote for TASK
  ENCODER_DIR   model.pt and dict.txt: fairseq's roberta.base, or what scripts/convert_hf_checkpoint.py wrote
  SAVE_DIR      for checkpoints; a run that was stopped goes on from its checkpoint_last.pt
options
  --from CHECKPOINT                                        start from it (pretrain.sh's checkpoint_best.pt), not from
                                                           ENCODER_DIR/model.pt
  --method alum_vat|alum_paper|alum_mtdnn|smart|standard   default: alum_vat
  --encoder roberta_base|roberta_large                     default: roberta_base; a converted encoder brings its sizes
  --gpus N                                                 share the sentences of an update among N GPUs; default: 1
  --dry-run                                                show the command only
All further options go to fairseq-train, and win over those of the yaml: --fp16, --seed 9017, --lr 2e-05, …
example: finetune.sh rte RTE-bin roberta.base out/rte --from out/alum/checkpoint_best.pt --method smart
TEXT
}

case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 4 ] || { usage >&2; exit 2; }
task=$(tr A-Z- a-z_ <<<"$1") data=$2 encoder=$3 save=$4  # SST-2 is sst_2
shift 4
read_options "$@"

check_glue_data "$data" "$encoder"
launch finetune/glue.yaml "$data" "$encoder" "${from:-$encoder/model.pt}" "$save" --glue "$task"
