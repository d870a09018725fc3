#!/usr/bin/env bash
# Fine-tunes a real pre-trained encoder with FreeLB and without, at the same learning rate: does it resist when the
# embeddings of a text are moved?
# Sets up .venv first. Finished steps of an earlier call are reused. The output of the commands goes to OUT/quickstart.log.
#
#   scripts/quickstart.sh                        1000 sentences of movie reviews (fairseq-adv fetch reviews)
#   scripts/quickstart.sh --glue DIR             a GLUE task folder instead, such as glue_data/RTE
#   scripts/quickstart.sh --encoder HF_FOLDER    another encoder's folder instead of MiniLM-L6
#   scripts/quickstart.sh --out DIR              output folder (default: out/quickstart)
#   scripts/quickstart.sh --epochs N             training epochs (default: 1; with --glue 4)
#   scripts/quickstart.sh --seed N               seed of both trainings (default: 1)
#   scripts/quickstart.sh --precision fp32       of both trainings (default: auto, see fairseq-adv train --help)
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 2; }
absolute() { case "$1" in '' | /*) printf '%s' "$1" ;; *) printf '%s/%s' "$here" "$1" ;; esac; }

glue='' encoder='' out=$PWD/out/quickstart epochs=default seed=1 precision=auto
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "scripts/${0##*/}"; exit 0 ;;
        --glue | --encoder | --out | --epochs | --seed | --precision)
            [ $# -ge 2 ] || die "$1 needs a value (see $0 --help)"
            case "$1" in
                --glue) glue=$(absolute "$2") ;;
                --encoder) encoder=$(absolute "$2") ;;
                --out) out=$(absolute "$2") ;;
                --epochs) epochs=$2 ;;
                --seed) seed=$2 ;;
                --precision) precision=$2 ;;
            esac
            shift 2 ;;
        *) die "unknown option '$1' (see $0 --help)" ;;
    esac
done
[ -z "$glue" ] || [ -d "$glue" ] || die "--glue $glue: no such folder"
[ -z "$encoder" ] || [ -f "$encoder/config.json" ] || die "--encoder $encoder: no config.json in it. Pass a Hugging Face model folder"
[ "$epochs" != default ] || { [ -z "$glue" ] && epochs=1 || epochs=4; }
case "$epochs" in '' | *[!0-9]* | 0* | ?????*) die "--epochs $epochs: pass a whole number from 1 to 9999, such as 4" ;; esac
case "$seed" in '' | *[!0-9]* | 0?* | ?????*) die "--seed $seed: pass a whole number from 0 to 9999" ;; esac
case "$precision" in auto | fp32 | bf16) ;; *) die "--precision $precision: pass auto, fp32 or bf16" ;; esac
[ -n "$out" ] || die "--out: empty. Pass a folder"

task=movies
if [ -n "$glue" ]; then
    task=$(basename "$glue")
    case "$task" in
        CoLA | SST-2 | MRPC | STS-B | QQP | MNLI | QNLI | RTE | WNLI) ;;
        *) die "--glue $glue: the folder must be named after its task: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI" ;;
    esac
    [ -f "$glue/train.tsv" ] || die "--glue $glue: no train.tsv in it"
fi
mkdir -p "$out" 2>/dev/null || die "--out $out: can't be created"
log=$out/quickstart.log
: 2>/dev/null >>"$log" || die "--out $out: can't be written"
step() {  # step "what is done" COMMAND...: its output goes into the log
    local begun=$SECONDS
    printf '%s … ' "$1"
    shift
    printf '\n== %s\n' "$*" >>"$log"
    if ! "$@" >>"$log" 2>&1; then
        printf 'failed\n'
        tail -n 5 "$log" >&2
        die "see $log"
    fi
    printf '%d s\n' $((SECONDS - begun))
}
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT  # both trainings, and what shows their progress
watch() {  # watch RUN: shows how much of a training is done, until it is ended
    local shown=0 now
    while sleep 1; do
        now=$(sed -n 's/.*"update": \([0-9.]*\),.*/\1/p' "$1/train.log" 2>/dev/null | tail -n 1) || true
        now=$(awk "BEGIN { print int(100 * ${now:-0} / $epochs) }")
        [ "$now" -lt $((shown + 10)) ] || { shown=$now && printf '%d %% ' "$now"; }
    done
}

name=minilm
[ -z "$encoder" ] || name=$(basename "$encoder")-$(find -L "$encoder" -maxdepth 1 \( -name '*.safetensors' -o -name '*.bin' -o -name '*.json' \) -print0 |
    sort -z | xargs -0 cat | sha256sum | cut -c1-8)
data=$out/data-$name-${glue:+glue-}$task
runs=$out/runs-$name-${glue:+glue-}$task-$epochs
[ "$precision" = auto ] || runs=$runs-$precision

step "1/5 the environment (.venv)" scripts/setup_env.sh --no-test
bin=$(CDPATH='' cd -- "${VENV:-.venv}/bin" && pwd)
export PATH="$bin:$PATH" PYTHONWARNINGS=ignore
# If other programs use the same cores, threads that spin while they wait make training several times slower.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
# Both models are trained, and attacked, at once, each on half of the cores.
half=$(python -c 'from fairseq_adv.data.processes import own_cores; print((own_cores() + 1) // 2)')
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$half}"

fetch() { [ -n "$encoder" ] || { encoder=$out/minilm && fairseq-adv fetch minilm "$encoder"; }; }
step "2/5 the encoder: ${encoder:-MiniLM-L6, a small pre-trained BERT}" fetch

prepare() {
    if [ -n "$glue" ]; then
        fairseq-adv prepare glue "$glue" "$task" "$data" --encoder "$encoder"
        return
    fi
    # No text has a line break, and the rows' order is that of a hash: the first ones are a random sample.
    local part
    fairseq-adv fetch reviews "$out/reviews" || return
    for part in train:1000 valid:200 test:300; do
        head -n $((${part#*:} + 1)) "$out/reviews/${part%:*}.csv" >"$out/${part%:*}.csv" || return
    done
    fairseq-adv prepare classification "$out/train.csv" --valid "$out/valid.csv" --test "$out/test.csv" \
        --text text --label label --encoder "$encoder" "$data"
}
step "3/5 the text: labelled sentences, tokenised and binarised" prepare

# Options of both runs; fairseq-adv train fills in FreeLB's sizes, which docs/choosing.md explains.
train() {
    exec fairseq-adv train "$data" --encoder "$encoder" --save-dir "$runs/$1-seed$seed" --criterion "$1" \
        --lr 1e-4 --max-epoch "$epochs" --seed "$seed" --precision "$precision"
}
train_both() {
    local method processes='' failed=''
    for method in standard freelb; do
        [ -f "$runs/$method-seed$seed/done" ] && continue
        train $method >"$out/$method.log" 2>&1 & processes="$processes $method:$!"
    done
    for method in $processes; do
        wait "${method#*:}" && touch "$runs/${method%:*}-seed$seed/done" || failed=${method%:*}
        cat "$out/${method%:*}.log"
    done
    [ -z "$failed" ] || { cat "$out/$failed.log" && return 1; }
}
watch "$runs/freelb-seed$seed" 2>/dev/null & watcher=$!
step "4/5 fine-tuning without perturbation, and beside it with FreeLB" train_both
{ kill $watcher; wait $watcher; } 2>/dev/null || true
told=$(sed -n 's/.*fairseq_adv.*precision_option | //p' "$runs/freelb-seed$seed/train.log" | tail -n 1)
[ -z "$told" ] || printf '    %s\n' "$told"

standard=$runs/standard-seed$seed freelb=$runs/freelb-seed$seed table=$runs/table-seed$seed.txt
text='A terrible, boring film.'
compare() {
    if [ -n "$glue" ]; then
        fairseq-adv compare "$standard" "$freelb" --epsilon 0.01 0.02 --relative --batches 4 >"$table"
        return
    fi
    ! [ "$table" -nt "$standard/done" ] || ! [ "$table" -nt "$freelb/done" ] || return 0
    examples/quickstart/table.py "$standard" "$freelb" --picture "${table%.txt}.svg" >"$table.new" && mv "$table.new" "$table"
}
step "5/5 both on unseen sentences, as they are and with moved embeddings" compare

echo
cat "$table"
echo
[ -n "$glue" ] || echo "as bars: ${table%.txt}.svg"
echo "checkpoints and logs: $standard, $freelb"
echo "commands and their output: $log"
printf -v predict '%q predict %q' "$bin/fairseq-adv" "$freelb/checkpoint_best.pt"
if [ -n "$glue" ]; then
    echo "more: $predict --help"
else
    answer=$(echo "$text" | fairseq-adv predict "$freelb/checkpoint_best.pt" --stdin 2>>"$log")
    echo "Now a sentence of your own. This one's answer is ${answer/$'\t'/, with probability }:"
    echo "echo '$text' | $predict --stdin"
fi
