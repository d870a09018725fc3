# Sourced by the slurm.sbatch of the reasoning tasks: runs EXAMPLE/run.sh with the seed of this job of the array.
#   . slurm_seeds.sh EXAMPLE WORDS "$@"    WORDS: how many of run.sh's words stand before SAVE_DIR
#
# A job that is preempted, loses its node or nears its time limit is queued again and goes on from checkpoint_last.pt.
# That is why run.sh says --finetune-from-model and not --restore-file: examples/glue/slurm.sbatch says more.
# SLURM runs a copy of slurm.sbatch, so its own folder tells nothing.
examples=$SLURM_SUBMIT_DIR/examples example=$1 before=$2
shift 2
[ $# -gt "$before" ] || {
    echo "usage: sbatch slurm.sbatch with the words of run.sh:" >&2
    "$examples/$example/run.sh" >&2 || true
    exit 2
}
words=("${@:1:before}") save=${*:before+1:1} options=("${@:before+2}")

read -r -a seeds <<<"$(python "$examples/glue/make_configs.py" --seeds)"
index=${SLURM_ARRAY_TASK_ID:-0}
seed=${seeds[$index]:-}
[ -n "$seed" ] || { echo "error: --array index $index, but there are ${#seeds[@]} seeds: 0 to $((${#seeds[@]} - 1))" >&2; exit 2; }

# One task a node: fairseq starts a process for each GPU itself. The port must differ between jobs that share a
# node; jobs of an array have ids of their own.
gpus=$((SLURM_NNODES * SLURM_GPUS_ON_NODE))
port=$((20000 + SLURM_JOB_ID % 20000))

trap 'signalled=1; echo "time is running out: queued again"; scontrol requeue "$SLURM_JOB_ID"' USR1
srun "$examples/$example/run.sh" "${words[@]}" "$save/seed-$seed" --gpus "$gpus" --distributed-port "$port" \
    --seed "$seed" ${options[@]+"${options[@]}"} &
# The signal ends a wait early; what counts is how srun ends.
while true; do
    signalled=
    wait $! && status=0 || status=$?
    [ -n "$signalled" ] || break
done
exit "$status"
