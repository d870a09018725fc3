#!/usr/bin/env bash
# Fine-tunes a small encoder on CoLA and MRPC on a CPU: plainly, with Flooding at several levels, with Flooding-X's level
# found by gradient accordance, and with FreeLB; attacks what came out, and sets the runs side by side. Resumable: what is
# finished is not done again, and a run that was cut short (minutes) begins anew.
#
#   examples/flooding/small_runs.sh DATA OUT [SETTING ...]
#     DATA      holds glue/{CoLA,MRPC} as GLUE distributes them
#     OUT       for data, logs and curves; OUT/table.md sets the runs side by side
#     SETTING   standard flooding-LEVEL freelb auto auto-head measured; default: these, with the levels 0.02 0.05 0.1 0.2
#   Example: examples/flooding/small_runs.sh ../shared/data out/flooding-small
#
# standard   plain training, untouched
# auto       --flood-level auto: plain until the accordance of all parameters goes from negative to positive
# auto-head  the same with that of the classification head
# measured   --flood-level 0: plain training that measures its accordance to the end; with the first seed alone
#
# ENCODER=DIR       a folder that convert_hf_checkpoint.py wrote; default: the quickstart's MiniLM, fetched and converted
# SEEDS="1 2 3"     one after the other, so that what is finished at any time is comparable
# TASKS="CoLA MRPC"
# ROWS=N EPOCHS=N   how many rows, spread over the training set, and how often; default: 400 (CoLA), 160 (MRPC), 5 epochs
# ATTACKED=N        mini-batches of 16 dev sentences that the attack sees; default: 4 (CoLA), 3 (MRPC)
# JOBS=N            runs at a time, on a thread each
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$here/examples/small_runs_lib.sh"
case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] || die "usage: $0 DATA OUT [SETTING ...] (see --help)"
data=$1 out=$2
shift 2
read -ra tasks <<<"${TASKS:-CoLA MRPC}"
for task in "${tasks[@]}"; do
    case $task in CoLA | MRPC) ;; *) die "no task is called $task (see --help)" ;; esac
    for split in train dev test; do
        [ -f "$data/glue/$task/$split.tsv" ] || die "$data/glue/$task/$split.tsv: no such file"
    done
done
settings=("$@")
[ $# -gt 0 ] || settings=(standard flooding-0.02 flooding-0.05 flooding-0.1 flooding-0.2 freelb auto auto-head measured)
for setting in "${settings[@]}"; do
    case $setting in
        standard | flooding-[0-9]* | freelb | auto | auto-head | measured) ;;
        *) die "no setting is called $setting (see --help)" ;;
    esac
done
need_fairseq
export OMP_NUM_THREADS=1
jobs=${JOBS:-2} epochs=${EPOCHS:-5}
read -ra seeds <<<"${SEEDS:-1 2 3}"
mkdir -p "$out"
find_encoder

sizes() {  # sizes TASK: sets rows, metric, head (the file's lines before the first row), attacked
    case $1 in
        CoLA) rows=${ROWS:-400} metric=mcc head=0 attacked=${ATTACKED:-4} ;;
        MRPC) rows=${ROWS:-160} metric=accuracy head=1 attacked=${ATTACKED:-3} ;;
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

one_run() {  # one_run TASK SETTING SEED: trains, attacks the last checkpoint, and drops it
    sizes "$1"
    local run=$out/$1-$2-$3 count updates half criterion curve=()
    count=$(awk -v head="$head" 'END { print NR - head }' "$out/glue-$rows/$1/train.tsv")
    updates=$(((count + 15) / 16 * epochs))
    # A sub-epoch is half an epoch: the paper says only that it is "several batch iterations".
    half=$((updates / epochs / 2 > 0 ? updates / epochs / 2 : 1))
    local accordance=(--accordance-interval "$half" --accordance-batches 4 --accordance-batch-size 16)
    case $2 in auto* | measured) ;; *) curve=(--validate-interval "$epochs") ;; esac  # the others: after the last epoch
    case $2 in
        standard) criterion=(--criterion standard) ;;
        flooding-*) criterion=(--criterion flooding --flood-level "${2#flooding-}") ;;
        auto) criterion=(--criterion flooding --flood-level auto "${accordance[@]}") ;;
        auto-head)
            criterion=(--criterion flooding --flood-level auto --flood-crossing-group head "${accordance[@]}") ;;
        measured) criterion=(--criterion flooding --flood-level 0 "${accordance[@]}") ;;
        # The quickstart's sizes, for this encoder.
        freelb) criterion=(--criterion freelb --adv-steps 3 --adv-lr 0.016 --adv-max-norm 0.05 --adv-init-mag 0.025) ;;
    esac
    train "$run" "$count rows, $epochs epochs, $attacked mini-batches attacked" "$out/$1-$rows-bin" "$encoder/model.pt" \
        --task sentence_prediction --num-classes 2 --init-token 0 --separator-token 2 "${criterion[@]}" --batch-size 16 --batch-size-valid 32 \
        --lr 3e-4 --lr-scheduler polynomial_decay --warmup-updates $((updates / 10)) --total-num-update $updates \
        --max-update $updates --seed "$3" --save-interval 1000 \
        --best-checkpoint-metric $metric --maximize-best-checkpoint-metric ${curve[@]+"${curve[@]}"}
    kept "$run/attack.json" python "$here/scripts/loss_under_perturbation.py" "$run/checkpoint_last.pt" \
        --epsilon 0.1 --steps 20 --batches "$attacked" --batch-size 16 --cpu --json
    rm -f "$run"/checkpoint_*.pt
}

work_alone
for task in "${tasks[@]}"; do prepare "$task"; done
for seed in "${seeds[@]}"; do
    for setting in "${settings[@]}"; do
        [ "$setting" != measured ] || [ "$seed" = "${seeds[0]}" ] || continue
        for task in "${tasks[@]}"; do
            wait_until $((jobs - 1))
            at_once one_run "$task" "$setting" "$seed"
        done
    done
done
wait_until 0
for run in "$out"/*-auto-* "$out"/*-measured-*; do
    [ -f "$run/done" ] || continue
    python "$here/scripts/gradient_accordance.py" log "$run" "$run/accordance" >"$run/accordance.txt"
done
tabulate "$here/examples/flooding/tabulate_flooding_runs.py"
