#!/usr/bin/env bash
# Every reasoning task for some hundred updates with a small encoder on a CPU, FreeLB and plainly: shows that a task
# works on real files before a large model is trained. Resumable: a finished run is not run again.
#
#   examples/small_runs.sh DATA ENCODER OUT [RUN ...]
#     DATA      holds commonsense_qa, arc, race, wsc, glue/QNLI and science_text as the data sets distribute them
#     ENCODER   what scripts/convert_hf_checkpoint.py wrote
#     OUT       for prepared data, checkpoints and logs; OUT/table.md sets the runs side by side
#     RUN       commonsense_qa qnli_ranking wsc race arc arc-without arc-multitask; default: all
#
# THREADS=2 gives each process two threads; UPDATES=4 makes all runs that short, to see whether all is there.
# WSC_CANDIDATES=noun-phrases takes WSC's candidates from spaCy, which needs a model; default: spans.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$here/examples/small_runs_lib.sh"
case ${1-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 3 ] || die "usage: $0 DATA ENCODER OUT [RUN ...] (see --help)"
data=$1 encoder=$2 out=$3
shift 3
need_encoder
need_fairseq
runs=("$@")
[ $# -gt 0 ] || runs=(commonsense_qa qnli_ranking wsc race arc arc-without arc-multitask)
export OMP_NUM_THREADS=${THREADS:-1}
mkdir -p "$out"

train_both() {  # train_both NAME UPDATES DATA options: freelb, then standard
    local name=$1 updates=${UPDATES:-$2} source=$3 method
    shift 3
    for method in freelb standard; do
        local run=$out/$name-$method adversary=()
        [ "$method" != freelb ] || adversary=(--adv-steps 2 --adv-lr 0.03 --adv-max-norm 0.1 --adv-init-mag 0.05)
        to_do "$run" "$updates" || continue
        echo "== $name, $method, $updates updates"
        fairseq_train "$run" "$source" "${START:-$encoder/model.pt}" --tokenizer-dir "$encoder" \
            --criterion "$method" ${adversary[@]+"${adversary[@]}"} \
            --lr 1e-4 --lr-scheduler polynomial_decay --warmup-updates $((updates / 10)) \
            --total-num-update "$updates" --max-update "$updates" --seed 1 \
            --validate-interval 1000 --validate-interval-updates $((updates / 2)) \
            --save-interval-updates $((updates / 2)) --keep-interval-updates 1 \
            --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric "$@"
        echo "$updates" >"$run/done"
    done
}

plain_arc() {  # each data set in a folder of its own
    for set in ARC-Easy ARC-Challenge; do
        mkdir -p "$out/arc-as-it-is/$set"
        for split in Train Dev; do
            ln -sf "$(realpath "$data/arc/$set-$split.jsonl")" "$out/arc-as-it-is/$set/"
        done
    done
}

retrieve() {  # the science sentences as documents of ARC's questions
    [ -d "$out/index" ] || python "$here/scripts/build_arc_index.py" "$data/science_text/sentences.txt" "$out/index"
    for set in ARC-Easy ARC-Challenge; do
        mkdir -p "$out/arc/$set"
        for split in Train Dev; do
            python "$here/scripts/retrieve_arc.py" "$out/index" "$data/arc/$set-$split.jsonl" "$out/arc/$set/$set-$split.jsonl"
        done
    done
}

for run in "${runs[@]}"; do
    case $run in
        commonsense_qa) train_both "$run" 150 "$data/commonsense_qa" --task commonsense_qa --batch-size 8 ;;
        qnli_ranking)
            [ -d "$out/qnli_pairs" ] || python "$here/scripts/prepare_qnli_ranking.py" "$data/glue/QNLI" "$out/qnli_pairs"
            train_both "$run" 150 "$out/qnli_pairs" --task qnli_ranking --batch-size 8 ;;
        wsc)
            [ -d "$out/wsc" ] || python "$here/scripts/prepare_wsc.py" "$data/wsc" "$out/wsc" \
                --candidates "${WSC_CANDIDATES:-spans}"
            train_both "$run" 150 "$out/wsc" --task wsc --batch-size 8 ;;
        race) train_both "$run" 150 "$data/race" --task arc_retrieval --batch-size 4 --tokens-per-sample 128 ;;
        arc)
            retrieve
            train_both "$run" 150 "$out/arc/ARC-Easy:$out/arc/ARC-Challenge" --task arc_retrieval --batch-size 8 --tokens-per-sample 64 ;;
        arc-without)
            plain_arc
            train_both "$run" 150 "$out/arc-as-it-is/ARC-Easy:$out/arc-as-it-is/ARC-Challenge" --task arc_retrieval --batch-size 8 \
                --no-documents ;;
        arc-multitask)  # the paper's recipe in small: RACE first, then both ARC sets together with some of RACE
            retrieve
            [ -f "$out/race-freelb/checkpoint_last.pt" ] || die "arc-multitask starts from the run race: name race before it"
            START=$out/race-freelb/checkpoint_last.pt train_both "$run" 150 \
                "$out/arc/ARC-Easy:$out/arc/ARC-Challenge:$data/race" --sampling-weights 1:1:0.5 --task arc_retrieval \
                --batch-size 8 --tokens-per-sample 64 ;;
        *) die "no run is called $run (see --help)" ;;
    esac
done
tabulate "$here/examples/tabulate_small_runs.py"
