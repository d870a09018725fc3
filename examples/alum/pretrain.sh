#!/usr/bin/env bash
# Pre-trains with the numbers of config/pretrain: builds one fairseq-train command, shows it and becomes it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../launch.sh"

usage() {
    cat <<'TEXT'
usage: pretrain.sh RECIPE DATA ENCODER_DIR SAVE_DIR [options] [fairseq-train options]
  RECIPE        roberta_base or roberta_large: continual pre-training; bert_base: from scratch, needs --max-epoch
  DATA          folders of scripts/prepare_corpus.py, joined by colons
  ENCODER_DIR   model.pt and dict.txt: fairseq's roberta.base, or what scripts/convert_hf_checkpoint.py wrote; for
                bert_base: -
  SAVE_DIR      for checkpoints; a run that was stopped goes on from its checkpoint_last.pt
options
  --method alum_vat|alum_paper|alum_mtdnn|standard   README.md says which is which; default: alum_vat, for bert_base
                                                     alum_vat_second_half
  --gpus N                                           share the rows of an update among N GPUs; default: 1
  --fp32                                             single precision; default: half (--fp16)
  --dry-run                                          show the command only
All further options go to fairseq-train, and win over those of the yaml: --vat-alpha 5, --max-update 20000, …
example: pretrain.sh roberta_base corpus/shard0:corpus/shard1 roberta.base out/alum --gpus 8
TEXT
}

case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 4 ] || { usage >&2; exit 2; }
name=$1 data=$2 encoder=$3 save=$4 start=$3/model.pt
shift 4
read_options "$@"

[ -f "$here/config/pretrain/$name.yaml" ] || fail "$name: no such recipe. There are roberta_base, roberta_large, bert_base"
if [ "$name" = bert_base ]; then
    [ "$encoder" = - ] || fail "bert_base begins with random weights: pass - instead of $encoder"
    case " ${extra[*]-} " in
        *" --max-epoch "* | *" --max-epoch="*) ;;
        *) fail "bert_base: the masking rate rises in equal steps of the training. Pass --max-epoch N: README.md has the sum" ;;
    esac
    encoder='' start=''
elif [ "$encoder" = - ]; then
    fail "$name goes on from a pre-trained encoder: pass its folder instead of -"
fi
IFS=: read -r -a folders <<<"$data"
for one in ${folders[@]+"${folders[@]}"}; do
    [ -f "$one/train.idx" ] || fail "$one/train.idx: no such file. DATA is what scripts/prepare_corpus.py --check prints"
done
launch "pretrain/$name.yaml" "$data" "$encoder" "${from:-$start}" "$save"
