#!/usr/bin/env bash
# Fine-tunes a small encoder on RTE and CoLA on a CPU with every method of the FreeLB paper, attacks what came out, and sets
# the runs side by side. Resumable: what is finished is not done again, and a run that was cut short begins anew.
#
#   examples/glue/small_runs.sh DATA OUT [METHOD ...]
#     DATA      holds glue/{RTE,CoLA} as GLUE distributes them
#     OUT       for data, logs and results; OUT/table.md sets the runs side by side
#     METHOD    standard freelb pgd freeat yopo; default: all of them
#   Example: examples/glue/small_runs.sh ../shared/data out/glue-small
#
# All methods: the same encoder, data, batches, learning rate, schedule and number of updates; alpha 0.016, epsilon 0.05,
# start 0.025, K 3, of the quickstart. freeat makes its three replays an update each, so that it makes as many
# passes over the network as standard and sees a third of its mini-batches. yopo is YOPO-3-2 with steps of alpha / 2.
#
# ENCODER=DIR       a folder that convert_hf_checkpoint.py wrote; default: the quickstart's MiniLM, fetched and converted
# SEEDS="1 2 3"     one after the other, so that what is finished at any time is comparable
# TASKS="RTE CoLA"
# ROWS=N UPDATES=N  how many rows, spread over the training set, and how many updates; default: 80 rows and 40 updates of 8
#                   (RTE), 400 rows and 125 updates of 16 (CoLA), which are 4 and 5 epochs
# ATTACKED=N        mini-batches of 16 dev rows that the attack sees; default: 2 (RTE), 8 (CoLA)
# JOBS=N            runs at a time, on a thread each
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$here/examples/small_runs_lib.sh"
case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] || die "usage: $0 DATA OUT [METHOD ...] (see --help)"
data=$1 out=$2
shift 2
read -ra tasks <<<"${TASKS:-RTE CoLA}"
for task in "${tasks[@]}"; do
    case $task in RTE | CoLA) ;; *) die "no task is called $task (see --help)" ;; esac
    for split in train dev test; do
        [ -f "$data/glue/$task/$split.tsv" ] || die "$data/glue/$task/$split.tsv: no such file"
    done
done
methods=("$@")
[ $# -gt 0 ] || methods=(standard freelb pgd freeat yopo)
for method in "${methods[@]}"; do
    case $method in
        standard | freelb | pgd | freeat | yopo) ;;
        *) die "no method is called $method (see --help)" ;;
    esac
done
need_fairseq
export OMP_NUM_THREADS=1
jobs=${JOBS:-2}
read -ra seeds <<<"${SEEDS:-1 2 3}"
mkdir -p "$out"
find_encoder

sizes() {  # sizes TASK: sets rows, updates, batch, head (the file's lines before the first row), attacked, metric
    case $1 in
        RTE) rows=${ROWS:-80} updates=${UPDATES:-40} batch=8 head=1 attacked=${ATTACKED:-2} metric=accuracy ;;
        CoLA) rows=${ROWS:-400} updates=${UPDATES:-125} batch=16 head=0 attacked=${ATTACKED:-8} metric=mcc ;;
    esac
}

prepare() {  # prepare TASK: binarised data of some rows
    sizes "$1"
    local part=$out/glue-$rows/$1 split
    [ ! -d "$out/$1-$rows-bin" ] || return 0
    mkdir -p "$part"
    some_rows "$data/glue/$1/train.tsv" "$head" "$rows" >"$part/train.tsv"
    for split in dev test; do cp "$data/glue/$1/$split.tsv" "$part"; done
    python "$here/scripts/prepare_glue.py" "$out/glue-$rows" "$1" "$out/$1-$rows-bin" --encoder "$encoder"
}

one_run() {  # one_run TASK METHOD SEED: trains, attacks the last checkpoint, and drops it
    sizes "$1"
    local run=$out/$1-$2-$3 criterion=(--criterion "$2")
    [ "$2" = standard ] || criterion+=(--adv-steps 3 --adv-lr 0.016 --adv-max-norm 0.05 --adv-init-mag 0.025)
    [ "$2" != yopo ] || criterion+=(--yopo-steps 2)
    train "$run" "$rows rows, $updates updates, $attacked mini-batches attacked" "$out/$1-$rows-bin" "$encoder/model.pt" \
        --task sentence_prediction --num-classes 2 --init-token 0 --separator-token 2 "${criterion[@]}" \
        --batch-size "$batch" --batch-size-valid 32 --lr 3e-4 --lr-scheduler polynomial_decay \
        --warmup-updates $((updates / 10)) --total-num-update "$updates" --max-update "$updates" --seed "$3" \
        --save-interval 1000 --validate-interval 1000 --best-checkpoint-metric "$metric" --maximize-best-checkpoint-metric
    kept "$run/attack.json" python "$here/scripts/loss_under_perturbation.py" "$run/checkpoint_last.pt" \
        --epsilon 0.05 --steps 20 --batches "$attacked" --batch-size 16 --cpu --json
    rm -f "$run"/checkpoint_*.pt
}

work_alone
for task in "${tasks[@]}"; do prepare "$task"; done
for seed in "${seeds[@]}"; do
    for method in "${methods[@]}"; do
        for task in "${tasks[@]}"; do
            wait_until $((jobs - 1))
            at_once one_run "$task" "$method" "$seed"
        done
    done
done
wait_until 0
tabulate "$here/examples/glue/tabulate_glue_runs.py"
