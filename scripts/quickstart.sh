#!/usr/bin/env bash
# Fine-tunes a real pre-trained encoder with FreeLB and without, and compares the two.
# Sets up .venv first. What an earlier call has finished is used again.
#
#   scripts/quickstart.sh                        the sentiment sentences in examples/quickstart/data
#   scripts/quickstart.sh --glue DIR             a GLUE task folder instead, such as glue_data/RTE
#   scripts/quickstart.sh --encoder HF_FOLDER    another BERT or RoBERTa folder instead of MiniLM-L6
#   scripts/quickstart.sh --out DIR              where everything goes (default: out/quickstart)
#   scripts/quickstart.sh --epochs N             training epochs (default: 3)
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 2; }
say() { printf '\n== %s\n' "$*"; }
absolute() { case "$1" in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$here" "$1" ;; esac; }

glue='' encoder='' out=$PWD/out/quickstart epochs=3
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        --glue | --encoder | --out | --epochs)
            [ $# -ge 2 ] || die "$1 wants a value (see $0 --help)"
            case "$1" in
                --glue) glue=$(absolute "$2") ;;
                --encoder) encoder=$(absolute "$2") ;;
                --out) out=$(absolute "$2") ;;
                --epochs) epochs=$2 ;;
            esac
            shift 2 ;;
        *) die "unknown option '$1' (see $0 --help)" ;;
    esac
done
[ -z "$glue" ] || [ -d "$glue" ] || die "--glue $glue: no such folder"
[ -z "$encoder" ] || [ -f "$encoder/config.json" ] || die "--encoder $encoder: no config.json in it, so no Hugging Face folder"
case "$epochs" in '' | *[!0-9]* | 0) die "--epochs $epochs: pass 1 or more" ;; esac

scripts/setup_env.sh --no-test
export PATH="${VENV:-$PWD/.venv}/bin:$PATH" PYTHONWARNINGS=ignore
# Where other programs use the same cores, threads that spin while they wait make training several times slower.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

say "1/4 the encoder: a pre-trained BERT as a fairseq checkpoint"
name=minilm
[ -z "$encoder" ] || name=$(basename "$encoder")
[ -n "$encoder" ] || { encoder=$out/minilm-hf; fairseq-adv fetch "$encoder"; }
[ -f "$out/encoder-$name/model.pt" ] || fairseq-adv convert "$encoder" "$out/encoder-$name"
encoder=$out/encoder-$name

# A task: its name, classes, and the score that picks the best checkpoint.
task=SST-2 metric=accuracy classes=2 regression=''
if [ -n "$glue" ]; then
    task=$(basename "$glue")
    case "$task" in
        CoLA) metric=mcc ;;
        MNLI) classes=3 ;;
        STS-B) metric=pearson classes=1 regression=--regression-target ;;
        SST-2 | MRPC | QQP | QNLI | RTE | WNLI) ;;
        *) die "--glue $glue: the folder must be named after its task: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI" ;;
    esac
fi
say "2/4 the text: tokenised and binarised as fairseq reads it"
data=$out/data-$name-${glue:+glue-}$task
fairseq-adv prepare glue "${glue:-examples/quickstart/data}" "$task" "$data" --encoder "$encoder"

rows=$(python -c 'import sys; from fairseq.data.indexed_dataset import MMapIndexedDataset as D; print(len(D(sys.argv[1])))' "$data/input0/train" 2>/dev/null)
updates=$(((rows + 15) / 16 * epochs))
runs=$out/runs-$name-${glue:+glue-}$task-$epochs
score=(--best-checkpoint-metric "$metric" --maximize-best-checkpoint-metric)

train() {  # train NAME CRITERION [its options]
    local run=$runs/$1 criterion=$2
    shift 2
    say "3/4 fine-tuning: $(basename "$run") ($epochs epochs, $updates updates)"
    if [ -f "$run/done" ]; then
        echo "already there: $run"
        return
    fi
    mkdir -p "$run"
    # shellcheck disable=SC2046
    fairseq-train "$data" --user-dir "$(fairseq-adv user-dir)" \
        --task sentence_prediction --num-classes "$classes" --init-token 0 --separator-token 2 $regression \
        --criterion "$criterion" "$@" \
        $(cat "$encoder/model_args.txt") --finetune-from-model "$encoder/model.pt" \
        --dropout 0.1 --attention-dropout 0.1 --weight-decay 0.1 --clip-norm 1.0 \
        --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-06 --lr 5e-05 \
        --lr-scheduler polynomial_decay --warmup-updates $((updates * 6 / 100)) --total-num-update "$updates" \
        --batch-size 16 --required-batch-size-multiple 1 --max-epoch "$epochs" --seed 1 \
        --shorten-method truncate "${score[@]}" --no-epoch-checkpoints \
        --save-dir "$run" --log-file "$run/train.log" --log-format json --log-interval 20
    touch "$run/done"
}
# Sizes for MiniLM-L6, whose embeddings are small; examples/glue/README.md tells how they were found.
train freelb freelb --adv-steps 3 --adv-lr 0.016 --adv-max-norm 0.05 --adv-init-mag 0.025
[ "$metric" != accuracy ] && plain=freelb plain_options=(--adv-steps 1) || plain=sentence_prediction plain_options=()
train plain "$plain" ${plain_options[@]+"${plain_options[@]}"}

say "4/4 side by side"
fairseq-adv compare "$runs/plain" "$runs/freelb" --metric "$metric" --epsilon 0.1
echo
echo "checkpoints and logs: $runs/{plain,freelb}/{checkpoint_best.pt,train.log}"
