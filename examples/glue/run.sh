#!/usr/bin/env bash
# Fine-tunes RoBERTa on a GLUE task with the numbers of hyperparameters.json: builds one fairseq-train command,
# shows it and becomes it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../launch.sh"

usage() {
    cat <<'TEXT'
usage: run.sh TASK DATA_BIN ROBERTA_DIR SAVE_DIR [options] [fairseq-train options]
  TASK          cola mnli mrpc qnli qqp rte sst_2 sts_b; GLUE's spelling (SST-2) will do
  DATA_BIN      what scripts/prepare_glue.py wrote for TASK
  ROBERTA_DIR   model.pt and dict.txt: fairseq's roberta.large, or what scripts/convert_hf_checkpoint.py wrote
  SAVE_DIR      for checkpoints; a run that was stopped goes on from its checkpoint_last.pt
options
  --method NAME                        freelb (the default), pgd, freeat, yopo; standard or plain: without perturbation
  --numbers authors_script|paper       whose alpha, epsilon, steps and start; default: authors_script, paper: freelb alone
  --gpus N                             share the sentences of an update among N GPUs; default: 1
  --dry-run                            show the command only
All further options go to fairseq-train, and win over those set here: --fp16, --seed 9017, --adv-lr 0.05, …
TEXT
}

case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 4 ] || { usage >&2; exit 2; }
task=$(tr A-Z- a-z_ <<<"$1") data=$2 roberta=$3 save=$4  # SST-2 is sst_2
shift 4
recipe=() extra=() dry_run=
while [ $# -gt 0 ]; do
    case $1 in
        --method | --numbers | --gpus)
            [ $# -ge 2 ] || fail "$1 needs a value"
            recipe+=("$1" "$2"); shift 2 ;;
        --method=* | --numbers=* | --gpus=*) recipe+=("$1"); shift ;;
        --dry-run) dry_run=1; shift ;;
        *) extra+=("$1"); shift ;;
    esac
done

python=$(command -v python3 || command -v python) || fail "no Python found: activate the project's environment"
# One word a line: no option of the recipe holds a line break.
lines=$("$python" "$here/make_configs.py" --options "$task" ${recipe[@]+"${recipe[@]}"}) || exit 2
options=()
while IFS= read -r line; do options+=("$line"); done <<<"$lines"

[ -f "$roberta/model.pt" ] ||
    fail "$roberta/model.pt: no such file. README.md tells where the pre-trained RoBERTa comes from"
check_glue_data "$data" "$roberta"
if [ -f "$roberta/model_args.txt" ]; then  # a converted encoder says how large it is
    read -r -a sizes <"$roberta/model_args.txt" || true
    options+=(${sizes[@]+"${sizes[@]}"})
fi
user_dir=$("$python" -m fairseq_adv_cli user-dir) || exit 2

words=(fairseq-train "$data" --user-dir "$user_dir" --finetune-from-model "$roberta/model.pt" --save-dir "$save"
    "${options[@]}" ${extra[@]+"${extra[@]}"})
printf '%q ' "${words[@]}"; echo
[ -z "$dry_run" ] || exit 0
command -v fairseq-train >/dev/null || fail "fairseq-train is not on the path: activate the project's environment"
exec "${words[@]}"
