#!/usr/bin/env bash
# What the run.sh of each reasoning task is: builds one fairseq-train command from a yaml, shows it and becomes it.
#   run_task.sh FOLDER YAML DATA ROBERTA_DIR SAVE_DIR [options]   FOLDER: whose run.sh says the usage; YAML: in there
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1 yaml=$1/$2
shift 2

usage() {
    sed -n '/^# usage/,/^[^#]/s/^# \{0,1\}//p' "$folder/run.sh"
    cat <<'TEXT'
  ROBERTA_DIR   model.pt, dict.txt, encoder.json and vocab.bpe: fairseq's roberta.large with the tokeniser's files beside
                it, or what scripts/convert_hf_checkpoint.py wrote
  SAVE_DIR      for checkpoints; a run that was stopped goes on from its checkpoint_last.pt
options
  --from CHECKPOINT              start from it, not from ROBERTA_DIR/model.pt
  --method freelb|pgd|standard   standard: plain training
  --gpus N                       share the examples of an update among N GPUs; default: 1
  --dry-run                      show the command only
All further options go to fairseq-train, and win over those of the yaml: --fp16, --seed 2333, --adv-lr 0.02, …
TEXT
}
fail() { echo "error: $*" >&2; exit 2; }

case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 3 ] || { usage >&2; exit 2; }
data=$1 roberta=$2 save=$3 start=$2/model.pt
shift 3
recipe=() extra=() dry_run=
while [ $# -gt 0 ]; do
    case $1 in
        --method | --gpus | --from)
            [ $# -ge 2 ] || fail "$1 needs a value"
            if [ "$1" = --from ]; then start=$2; else recipe+=("$1" "$2"); fi
            shift 2 ;;
        --from=*) start=${1#*=}; shift ;;
        --method=* | --gpus=*) recipe+=("$1"); shift ;;
        --dry-run) dry_run=1; shift ;;
        *) extra+=("$1"); shift ;;
    esac
done

python=$(command -v python3 || command -v python) || fail "no Python found: activate the project's environment"
# One word a line: no option of a yaml holds a line break.
lines=$("$python" "$here/yaml_options.py" "$yaml" ${recipe[@]+"${recipe[@]}"}) || exit 2
options=()
while IFS= read -r line; do options+=("$line"); done <<<"$lines"

if [ "$start" = "$roberta/model.pt" ]; then
    [ -f "$start" ] || fail "$start: no such file. examples/glue/README.md tells where the pre-trained RoBERTa comes from"
else
    [ -f "$start" ] || fail "--from $start: no such file. It is a checkpoint of the stage before"
fi
[ -f "$roberta/dict.txt" ] || fail "$roberta/dict.txt: no such file. It comes with RoBERTa's model.pt"
[ -f "$roberta/vocab.txt" ] || { [ -f "$roberta/encoder.json" ] && [ -f "$roberta/vocab.bpe" ]; } ||
    fail "$roberta: holds no tokeniser. Put GPT-2's encoder.json and vocab.bpe there (examples/glue/README.md tells" \
        "where they come from); a BERT has a vocab.txt"
IFS=: read -r -a folders <<<"$data"  # a:b:c are data sets that are trained on together
for one in ${folders[@]+"${folders[@]}"}; do
    [ -d "$one" ] || fail "$one: no such folder. $(basename "$folder")/README.md tells what the data are"
done
if [ -f "$roberta/model_args.txt" ]; then  # a converted encoder says how large it is
    read -r -a sizes <"$roberta/model_args.txt" || true
    options+=(${sizes[@]+"${sizes[@]}"})
fi
user_dir=$("$python" -m fairseq_adv_cli user-dir) || exit 2

words=(fairseq-train "$data" --user-dir "$user_dir" --tokenizer-dir "$roberta" --finetune-from-model "$start"
    --save-dir "$save" "${options[@]}" ${extra[@]+"${extra[@]}"})
printf '%q ' "${words[@]}"; echo
[ -z "$dry_run" ] || exit 0
command -v fairseq-train >/dev/null || fail "fairseq-train is not on the path: activate the project's environment"
exec "${words[@]}"
