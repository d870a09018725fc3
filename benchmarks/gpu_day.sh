#!/usr/bin/env bash
# Everything worth running on a CUDA GPU, the most valuable first, in calls of a few minutes each. The parts up to
# masked-lm-large-32 take 25 minutes at most, the others 25 more.
#
#   benchmarks/gpu_day.sh prepare CARRIED      where there is network: wheels for the machine's Python, and texts
#   benchmarks/gpu_day.sh OUT [--carried CARRIED] [--minutes N] [--jobs N] [--again] [--device cuda|cpu] [--tiny]
#
# OUT/gpu-day.tar.gz has all that was made so far, written after each part: summary.md with the tables, the logs, a
# profiler's trace, and the mode matrix. The same command goes on from there, or from CARRIED/gpu-day.tar.gz where OUT
# is empty. No part is started that may not end within --minutes (9) of this call. A part that failed, or took
# twice its time, is left alone unless --again is given. --jobs: cells of the mode matrix in parallel (13, for 16 cores).
#
# CARRIED is for a machine without network that has Python and torch: 20 wheels (24 MB) are unzipped into an environment
# of its own, beside the machine's packages. Without --carried, .venv or the Python on PATH is used, and texts of random
# words, without padding.
# Hugging Face's sides run where transformers is installed. PYTHON=python3.12: the Python to prepare wheels for.
#
# --tiny --device cpu is a rehearsal: each kind of part but graphs and compiled layers, as small as possible.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

# In place of the machine's own, if it has any; and what fairseq, the tests and the benchmarks import besides, if the
# machine has none. antlr4, hydra and omegaconf must be those that fairseq 0.12.2 works with.
FIRST=(fairseq antlr4-python3-runtime bitarray hydra-core omegaconf)
BESIDE=(colorama iniconfig lxml packaging pluggy portalocker pygments pytest pyyaml regex sacrebleu safetensors
    tabulate tokenizers tqdm)

prepare() {  # prepare CARRIED
    local to=$1 python=${PYTHON:-python3.12} adv=fairseq-adv
    command -v "$python" >/dev/null || die "'$python' was not found: set PYTHON to a Python of the machine's version"
    [ ! -x .venv/bin/fairseq-adv ] || adv=.venv/bin/fairseq-adv
    command -v "$adv" >/dev/null || die "fairseq-adv was not found: run scripts/setup_env.sh"
    set -e
    mkdir -p "$to"
    if [ ! -d "$to/wheels" ]; then
        "$python" -m venv "$scratch/build"
        "$scratch/build/bin/python" scripts/repack_wheels.py "$scratch/repacked" >/dev/null
        wheel() {
            "$scratch/build/bin/python" -m pip wheel -q --no-deps --find-links "$scratch/repacked" -c constraints.txt \
                -w "$scratch/wheels/$@"
        }
        wheel first "${FIRST[@]}"
        wheel beside "${BESIDE[@]}"
        mv "$scratch/wheels" "$to"
    fi
    if [ ! -d "$to/texts" ]; then
        "$adv" fetch reviews "$scratch/reviews"
        "$adv" fetch minilm "$scratch/minilm"
        mkdir -p "$scratch/texts/encoder"  # only its tokenizer is needed
        cp "$scratch"/minilm/{config,tokenizer,tokenizer_config}.json "$scratch/texts/encoder"
        "$python" -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1], encoding="utf-8", newline="")):
    print(row["label"], " ".join(row["text"].split()))' "$scratch/reviews/train.csv" >"$scratch/texts/reviews.txt"
        mv "$scratch/texts" "$to"
    fi
    du -sh "$to"
}
environment() {  # environment CARRIED: an environment with its wheels and the packages of the python3 on PATH
    local env=$scratch/env site wheel name
    # --system-site-packages would not do: where python3 is of an environment itself, that shows the packages of the
    # Python below it.
    python3 -m venv --without-pip "$env" || return
    site=$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    for wheel in "$1"/wheels/first/*.whl; do python3 -m zipfile -e "$wheel" "$site" || return; done
    for wheel in "$1"/wheels/beside/*.whl; do python3 -m zipfile -e "$wheel" "$scratch/beside" || return; done
    # Each folder's own .pth files count too: this project's lets fairseq run on today's Python.
    python3 -c 'import sys
for path in [*[p for p in sys.path if p.endswith("-packages")], *sys.argv[1:]]:
    print(f"import site; site.addsitedir({path!r})")' "$scratch/beside" "$PWD" >"$site/beside.pth"
    for name in train hydra_train; do
        printf '#!%s\nfrom fairseq_cli.%s import cli_main\ncli_main()\n' "$env/bin/python" $name \
            >"$env/bin/fairseq-${name//_/-}"
        chmod +x "$env/bin/fairseq-${name//_/-}"
    done
    PATH=$env/bin:$PATH
}
save() {  # the summary, and all results as one file, whole or not at all
    local name
    for name in "${done_parts[@]}"; do
        printf '## %s (exit status %s)\n\n' "$name" "$(cat "$work/$name.status")"
        cat "$work/$name.txt"
        echo
    done >"$work/summary.md"
    tar -czf "$out/.gpu-day.tar.gz" -C "$work" . && mv "$out/.gpu-day.tar.gz" "$out/gpu-day.tar.gz"
}
part() {  # part NAME MINUTES COMMAND …: runs it unless it was run or may not end in time
    local name=$1 seconds=$(($2 * 60)) left=$((minutes * 60 - SECONDS)) limit status=0
    shift 2
    limit=$left
    [ $seconds -eq 0 ] || [[ $name == modes-* ]] || [ $left -le $((2 * seconds)) ] || limit=$((2 * seconds))
    if [ ! -e "$work/$name.status" ]; then
        if [ $left -le 0 ] || [ $left -lt $seconds ]; then open_parts+=("$name"); return; fi
        printf '== %s (second %d)\n' "$name" $SECONDS
        # An interrupt ends the matrix's training processes too; its finished cells are kept.
        timeout -s INT -k 20 $limit "$@" >"$work/$name.txt" 2>"$work/$name.log" || status=$?
        if [ $limit -eq $left ] && { [ $status -eq 124 ] || [ $status -eq 137 ]; }; then
            echo "out of time"
            open_parts+=("$name")
            save
            return
        fi
        echo $status >"$work/$name.status"
        cat "$work/$name.txt"
        [ $status -eq 0 ] || { printf 'exit status %d\n' $status; tail -n 3 "$work/$name.log"; }
    fi
    done_parts+=("$name")
    [ "$(cat "$work/$name.status")" = 0 ] || failed_parts+=("$name")
    save
}
peers() {  # peers NAME MINUTES MODEL PRECISION SENTENCES [SIDE …]: updates against fairseq's own and Hugging Face's
    local rounds=7 updates=4 chosen=("${@:6}")
    [ -z "$tiny" ] || rounds=1 updates=1
    [ $# -gt 5 ] || chosen=("${sides[@]}")
    part "$1" "$2" python benchmarks/peers.py "${texts[@]}" --model "$3" --precision "$4" --sentences "$5" \
        --updates $updates --rounds $rounds --sides "${chosen[@]}"
}
modes() { part "$1" "$2" python benchmarks/gpu_matrix.py "$work/modes" --jobs "$jobs" ${again:+--again} "${@:3}"; }
profile() { part profile${tiny:+-tiny} "$1" python benchmarks/gpu_profile.py "${texts[@]}" --trace "$work/trace.json.gz" "${@:2}"; }

case ${1-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "benchmarks/${0##*/}"; exit 0 ;;
    '' | -*) die "pass the folder for the results (see --help)" ;;
esac
out=$1 device=cuda tiny='' minutes=9 carried='' jobs=13 again=''
shift
if [ "$out" = prepare ]; then
    [ $# -eq 1 ] || die "prepare needs the folder for wheels and texts (see --help)"
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    prepare "$1"
    exit
fi
while [ $# -gt 0 ]; do
    case $1 in
        --device | --minutes | --carried | --jobs)
            [ $# -ge 2 ] || die "$1 needs a value"
            case $1 in
                --device) device=$2 ;; --minutes) minutes=$2 ;; --carried) carried=$2 ;; --jobs) jobs=$2 ;;
            esac
            shift 2 ;;
        --tiny) tiny=1; shift ;;
        --again) again=1; shift ;;
        *) die "unknown option '$1' (see --help)" ;;
    esac
done
case $device in cpu | cuda) ;; *) die "--device $device: pass cuda or cpu" ;; esac
case $minutes in '' | *[!0-9]* | 0?* | ?????*) die "--minutes $minutes: pass a whole number, such as 9" ;; esac
case $jobs in '' | *[!0-9]* | 0* | ????*) die "--jobs $jobs: pass a whole number, such as 13" ;; esac
[ -z "$carried" ] || [ -d "$carried/wheels/first" ] || die "$carried/wheels: no such folder; gpu_day.sh prepare makes it"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -n "$carried" ]; then
    environment "$carried" || die "the wheels in $carried can't be unpacked; prepare it again for this Python"
elif [ -x .venv/bin/python ]; then
    PATH=$PWD/.venv/bin:$PATH
fi
export HF_HUB_OFFLINE=1
if [ "$device" = cpu ]; then
    export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
else
    python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
        die "torch sees no CUDA GPU; --device cpu --tiny tries everything that needs none"
fi
mkdir -p "$out" || die "$out: cannot be created"
out=$(cd "$out" && pwd) work=$scratch/work open_parts=() done_parts=() failed_parts=()
mkdir "$work"
for before in "$out/gpu-day.tar.gz" "$carried/gpu-day.tar.gz"; do
    [ ! -f "$before" ] || { tar -xzf "$before" -C "$work" || die "$before: cannot be unpacked; delete it"; break; }
done
[ -z "$again" ] || grep -LZx 0 "$work"/*.status 2>/dev/null | xargs -0 -r rm
texts=("random:128")
[ -z "$tiny" ] || texts=("random:8")
[ ! -d "$carried/texts" ] || texts=("$carried/texts/reviews.txt" --encoder "$carried/texts/encoder")
sides=(freelb standard alum_vat smart fairseq)
! python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("transformers"))' || sides+=(hf-eager hf-sdpa)

# Without a GPU they run on an emulated one.
part tests${tiny:+-tiny} 2 python -m pytest -q -p no:cacheprovider -m gpu tests/gpu
if [ -n "$tiny" ]; then
    texts+=(--rows 8)
    peers peers-tiny 0 minilm bf16 2
    peers peers-tiny-amp 0 minilm fp32 2 freelb-amp standard-amp
    part masked-lm-tiny 0 python benchmarks/update_cost.py --task masked-lm --model thin --precision bf16 \
        --rows 2 --tokens 16 --rounds 1 --sides standard alum_vat
    profile 0 --model minilm --precision bf16 --sentences 2
    modes modes-tiny 0 --methods standard freelb --precisions fp32 --modes single update-freq
else
    peers peers-base-bf16 2 base bf16 32
    amp=(freelb-amp standard-amp)
    [[ " ${sides[*]} " != *" hf-sdpa "* ]] || amp+=(hf-eager-amp hf-sdpa-amp)
    peers peers-base-amp 2 base fp32 32 "${amp[@]}"
    part graphs 5 python benchmarks/gpu_graphs.py time equal
    # A part of its own, since all of its sides fail without triton and a C++ compiler.
    peers peers-base-compile 2 base bf16 32 freelb freelb-compile
    for rows in 8 32; do
        for model in base:2 large:3; do
            part masked-lm-${model%:*}-$rows ${model#*:} python benchmarks/update_cost.py --task masked-lm --model ${model%:*} \
                --precision bf16 --rows $rows --tokens 512 --rounds 5 --sides standard alum_vat
        done
    done
    # Whichever cells are done when time is up are kept. Two processes share one GPU, on gloo.
    for mode in pytorch_ddp checkpoint-activations layerdrop update-freq; do modes modes-$mode 2 --modes $mode; done
    profile 2 --model base --precision bf16 --sentences 32
    modes modes-single 3 --modes single --precisions fp32 fp16 bf16 amp
    peers peers-base-fp16 2 base fp16 32
    for half in bf16 fp16; do peers peers-large-$half 3 large $half 32; done
    peers peers-base-bf16-128 2 base bf16 128
    modes modes-all 2
fi
if [ ${#failed_parts[@]} -gt 0 ]; then echo "failed: ${failed_parts[*]}; see their logs in $out/gpu-day.tar.gz"; fi
if [ ${#open_parts[@]} -gt 0 ]; then
    echo "not done: ${open_parts[*]}; run the same command again"
    exit 1
fi
echo "all done: the tables are summary.md in $out/gpu-day.tar.gz"
[ ${#failed_parts[@]} -eq 0 ]
