#!/usr/bin/env bash
# Everything worth running in half an hour on a CUDA GPU, the most valuable first. Resumable: finished parts are not
# repeated.
#
#   benchmarks/gpu_day.sh OUT [--device cuda|cpu] [--tiny] [--minutes N] [--data DATA]
#
# The log and the tables of each part go into OUT. No part takes more than 8 minutes, and none is started after
# --minutes (28). --tiny makes every part as small as possible and --device cpu leaves out what needs a GPU, to check
# that everything is installed. Uses .venv if there is one, otherwise the Python on PATH. --data fills
# examples/evidence in the time that is left; its encoder is fetched unless OUT/evidence/encoder has it.
#
# A machine without network access that has torch and numpy needs 45 MB of wheels, built elsewhere with the same
# Python:
#
#   pip wheel --no-deps -c constraints.txt -w wheels . fairseq antlr4-python3-runtime bitarray colorama filelock \
#     hydra-core iniconfig lxml omegaconf packaging pluggy portalocker pygments pytest pyyaml regex sacrebleu \
#     safetensors sentencepiece tabulate tiktoken tqdm typing_extensions transformers tokenizers huggingface_hub \
#     annotated-doc annotated-types anyio certifi click h11 httpcore2 httpx2 idna markdown-it-py mdurl pydantic \
#     pydantic-core rich shellingham truststore typer typing-inspection
#   python -m venv --system-site-packages env && env/bin/pip install --no-index --no-deps wheels/*.whl     # there
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

case ${1-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; exit 0 ;;
    '' | -*) die "pass the folder for the results (see --help)" ;;
esac
out=$1 device=cuda tiny='' minutes=28 data=''
shift
while [ $# -gt 0 ]; do
    case $1 in
        --device | --minutes | --data)
            [ $# -ge 2 ] || die "$1 needs a value"
            case $1 in --device) device=$2 ;; --minutes) minutes=$2 ;; --data) data=$2 ;; esac
            shift 2 ;;
        --tiny) tiny=1; shift ;;
        *) die "unknown option '$1' (see --help)" ;;
    esac
done
case $device in cpu | cuda) ;; *) die "--device $device: pass cuda or cpu" ;; esac
case $minutes in '' | *[!0-9]* | 0?* | ?????*) die "--minutes $minutes: pass a whole number, such as 28" ;; esac
[ ! -x .venv/bin/python ] || PATH=$PWD/.venv/bin:$PATH
if [ "$device" = cpu ]; then
    export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
else
    python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
        die "torch sees no CUDA GPU; --device cpu --tiny tries everything that needs none"
fi
mkdir -p "$out" || die "$out: cannot be created"
out=$(cd "$out" && pwd)

part() {  # part NAME COMMAND …: runs it unless it is done or time is up
    local name=$1
    shift
    [ ! -e "$out/$name.done" ] || return 0
    if [ $((SECONDS / 60)) -ge "$minutes" ]; then left+=("$name"); return 0; fi
    printf '== %s (minute %d)\n' "$name" $((SECONDS / 60))
    if timeout 480 "$@" >"$out/$name.txt" 2>"$out/$name.log"; then
        touch "$out/$name.done"
        cat "$out/$name.txt"
    else
        printf 'not done: status %d; see %s\n' $? "$out/$name.log"
        tail -n 3 "$out/$name.log"
        left+=("$name")
    fi
}
cost() {  # cost NAME MODEL PRECISION SENTENCES: an update against fairseq's own and Hugging Face's
    local tokens=128 rounds=7
    [ -z "$tiny" ] || tokens=8 rounds=1
    part "$1" python benchmarks/peers.py "random:$tokens" --model "$2" --precision "$3" --sentences "$4" --updates 4 \
        --rounds $rounds --sides freelb standard alum_vat smart fairseq hf-sdpa
}

left=()
jobs=4
if [ -n "$tiny" ]; then
    part modes python benchmarks/gpu_matrix.py "$out/modes" --methods standard freelb --precisions fp32 --modes single --jobs 1
else
    part modes python benchmarks/gpu_matrix.py "$out/modes" --modes single update-freq --jobs $jobs
fi
# Without a GPU all of these tests are skipped, and pytest's status is 0.
part tests python -m pytest -q -m gpu tests/gpu
if [ -n "$tiny" ]; then
    half=bf16
    [ "$device" = cpu ] || half=fp16
    cost cost-tiny minilm $half 2
else
    for sentences in 16 32; do
        for model in base large; do
            for half in fp16 bf16; do cost "cost-$model-$half-$sentences" $model $half $sentences; done
        done
    done
    part modes-all python benchmarks/gpu_matrix.py "$out/modes" --jobs $jobs  # two processes, re-computed layers, LayerDrop
fi
remaining=$((minutes - SECONDS / 60))
if [ -n "$data" ] && [ $remaining -gt 0 ]; then
    printf '== evidence (minute %d)\n' $((SECONDS / 60))
    examples/evidence/run.sh "$data" "$out/evidence" --device "$device" --jobs $jobs --stop-after $remaining \
        >"$out/evidence.log" 2>&1 || left+=(evidence)
    tail -n 1 "$out/evidence.log"
fi
if [ ${#left[@]} -gt 0 ]; then
    echo "not done: ${left[*]}; run the same command again"
    exit 1
fi
echo "all done; benchmarks/gpu_matrix.py $out/modes --into docs/modes.md writes the table of modes"
