#!/usr/bin/env bash
# Continual pre-training of a small encoder on a CPU, plainly and with ALUM for the same wall time, then both fine-tuned
# on RTE and MRPC with standard, alum_vat and smart. Resumable: what is finished is not done again, pre-training goes on
# from its last checkpoint, and a fine-tuning run that was cut short (minutes) begins anew.
#
#   examples/alum/small_runs.sh DATA OUT [STAGE ...]
#     DATA     holds text/{train,valid}.txt and glue/{RTE,MRPC} as the data sets distribute them
#     OUT      for shards, checkpoints and logs; OUT/table.md sets the runs side by side
#     STAGE    corpus warmup pretrain evaluate finetune; default: all, in this order
#   Example: examples/alum/small_runs.sh ../shared/data out/alum-small
#
# ENCODER=DIR       a folder that convert_hf_checkpoint.py wrote; default: the quickstart's MiniLM, fetched and converted
# WARMUP_UPDATES=N  plain updates that give the masked-LM head its first training, before the two runs part
# MINUTES=N         wall time of each pre-training run; both run at once, on a thread each
# UPDATES=N SEEDS="1 2 3" STARTS="plain alum"  of the fine-tuning; the start none is the encoder as it was published
# EPSILONS="0.05 0.2"  L2 radii, per row of text, of the attack on the pre-trained models
# JOBS=N            fine-tuning runs at a time, on a thread each
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$here/examples/small_runs_lib.sh"
case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] || die "usage: $0 DATA OUT [STAGE ...] (see --help)"
data=$1 out=$2
shift 2
for file in text/train.txt text/valid.txt glue/RTE glue/MRPC; do
    [ -e "$data/$file" ] || die "$data/$file: no such file"
done
need_fairseq
stages=("$@")
[ $# -gt 0 ] || stages=(corpus warmup pretrain evaluate finetune)
for stage in "${stages[@]}"; do
    case $stage in
        corpus | warmup | pretrain | evaluate | finetune) ;;
        *) die "no stage is called $stage (see --help)" ;;
    esac
done
export OMP_NUM_THREADS=1
warmup_updates=${WARMUP_UPDATES:-400} minutes=${MINUTES:-15} updates=${UPDATES:-50} jobs=${JOBS:-2}
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra starts <<<"${STARTS:-plain alum}"
mkdir -p "$out"
find_encoder

pretrain() {  # pretrain RUN SETTING START options
    local run=$1 setting=$2 start=$3
    shift 3
    # A row is 128 tokens of running text. lr is fixed after its warm-up, so that no total has to be known.
    train "$run" "$setting" "$out/corpus/shard0" "$start" --task masked_lm --sample-break-mode none \
        --batch-size 16 --tokens-per-sample 128 --mask-prob 0.15 --lr 3e-4 --lr-scheduler fixed --warmup-updates 50 --seed 1 \
        --disable-validation --save-interval-updates 50 --keep-interval-updates 1 "$@"
}

weights_only() {  # weights_only CHECKPOINT NEW: without the optimizer and the time that --stop-time-hours counts on from
    python - "$1" "$2.new" <<'PYTHON'
import sys
import torch
from fairseq import checkpoint_utils

state = checkpoint_utils.load_checkpoint_to_cpu(sys.argv[1])
state["last_optimizer_state"] = None
state["extra_state"].pop("previous_training_time")
torch.save(state, sys.argv[2])
PYTHON
    mv "$2.new" "$2"
}

validate() {  # validate RUN CHECKPOINT: the whole validation split, and some of it under attack
    kept "$1/valid.log" fairseq-validate "$out/corpus/shard0" --user-dir "$user_dir" --path "$2" --task masked_lm --cpu \
        --batch-size 32 --num-workers 0 --log-format simple --no-progress-bar
    for epsilon in ${EPSILONS:-0.05 0.2}; do
        kept "$1/attack-$epsilon.json" python "$here/scripts/loss_under_perturbation.py" "$2" --epsilon $epsilon \
            --steps 5 --batches 4 --batch-size 16 --cpu --json
    done
}

finetune() {  # finetune TASK START METHOD SEED
    local task=$1 start=$out/pretrain-$2/checkpoint_last.pt method=() sentences=16
    [ "$1" != RTE ] || sentences=8  # some of its premises are long, and a batch is padded to the longest
    [ "$2" != none ] || start=$encoder/model.pt
    case $3 in
        standard) method=(--criterion standard) ;;
        alum_vat) method=(--criterion alum_vat --vat-alpha 1) ;;
        smart) method=(--criterion smart --vat-alpha 1 --smart-mu 1 --store-ema --ema-decay 0.99) ;;
    esac
    train "$out/finetune/$1-$2-$3-$4" "$updates updates" "$out/$1-bin" "$start" --task sentence_prediction \
        --num-classes 2 --init-token 0 --separator-token 2 "${method[@]}" --lr 1e-4 --lr-scheduler polynomial_decay \
        --warmup-updates $((updates / 10)) --total-num-update "$updates" --max-update "$updates" --seed "$4" \
        --batch-size $sentences --validate-interval 1000 --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --no-save
}

work_alone
for stage in "${stages[@]}"; do
    case $stage in
        corpus)
            python "$here/scripts/prepare_corpus.py" "$data/text/train.txt" "$out/corpus" --shards 1 --workers 1 \
                --encoder "$encoder" --valid "$data/text/valid.txt"
            for task in RTE MRPC; do
                [ -d "$out/$task-bin" ] ||
                    python "$here/scripts/prepare_glue.py" "$data/glue" $task "$out/$task-bin" --encoder "$encoder"
            done ;;
        warmup)  # the encoder was published without its masked-LM head; this one begins at random, tied to the embeddings
            at_once pretrain "$out/warmup" "$warmup_updates updates" "$encoder/model.pt" --criterion masked_lm \
                --max-update "$warmup_updates"
            wait_until 0
            [ -f "$out/warmup/start.pt" ] || weights_only "$out/warmup/checkpoint_last.pt" "$out/warmup/start.pt" ;;
        pretrain)
            hours=$(python -c 'import sys; print(float(sys.argv[1]) / 60)' "$minutes")
            for arm in plain alum; do
                criterion=(--criterion standard)
                [ $arm = plain ] || criterion=(--criterion alum_vat --vat-alpha 10)
                at_once pretrain "$out/pretrain-$arm" "$minutes minutes" "$out/warmup/start.pt" \
                    "${criterion[@]}" --stop-time-hours "$hours"
            done
            wait_until 0
            # What ALUM adds is to be told from what fewer updates leave out.
            same=$(grep -o 'num_updates [0-9]*' "$out/pretrain-alum/train.log" | tail -n 1 | cut -d ' ' -f 2)
            at_once pretrain "$out/pretrain-same" "$same updates" "$out/warmup/start.pt" --criterion standard \
                --max-update "$same"
            wait_until 0 ;;
        evaluate)
            for run in warmup pretrain-plain pretrain-alum pretrain-same; do
                wait_until $((jobs - 1))
                at_once validate "$out/$run" "$out/$run/checkpoint_last.pt"
            done
            wait_until 0 ;;
        finetune)
            for seed in "${seeds[@]}"; do
                for start in "${starts[@]}"; do
                    for task in MRPC RTE; do
                        for method in smart alum_vat standard; do
                            wait_until $((jobs - 1))
                            at_once finetune $task "$start" $method "$seed"
                        done
                    done
                done
            done
            wait_until 0 ;;
    esac
done
compgen -G "$out/*/valid.log" >/dev/null || compgen -G "$out/finetune/*/done" >/dev/null || exit 0  # no table yet
tabulate "$here/examples/alum/tabulate_alum_runs.py"
