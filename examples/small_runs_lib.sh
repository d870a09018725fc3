# Sourced by the small_runs.sh of the examples: trainings with a small encoder on a CPU, resumable, several at a time.
# The script that sources it sets here (the project's folder); out (for checkpoints and logs) and encoder before it trains.
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

# usage FIRST_WORD: shows the comment at the top of the script, as --help
usage() { awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; }

need_fairseq() {
    command -v fairseq-train >/dev/null || die "fairseq-train is not on the path: activate the project's environment"
    export PYTHONWARNINGS=ignore
    user_dir=$(python -m fairseq_adv_cli user-dir)
}

find_encoder() {  # sets encoder: $ENCODER, or the quickstart's MiniLM, fetched and converted
    encoder=${ENCODER:-$out/encoder}
    if [ -z "${ENCODER-}" ] && [ ! -f "$encoder/model.pt" ]; then
        python "$here/scripts/fetch_minilm.py" "$out/encoder-hf"
        python "$here/scripts/convert_hf_checkpoint.py" "$out/encoder-hf" "$encoder"
    fi
    need_encoder
}
need_encoder() {
    [ -f "$encoder/model.pt" ] || die "$encoder/model.pt: no such file. scripts/convert_hf_checkpoint.py makes it"
}

to_do() {  # to_do RUN SETTING: whether RUN/done says something else than SETTING; a run with another setting is removed
    [ "$(cat "$1/done" 2>/dev/null)" != "$2" ] || return 1
    [ ! -f "$1/done" ] || rm -r "$1"
    mkdir -p "$1" || die "$1: cannot be made"
}

fairseq_train() {  # fairseq_train RUN DATA START options
    local run=$1 source=$2 start=$3
    shift 3
    # shellcheck disable=SC2046
    fairseq-train "$source" --user-dir "$user_dir" $(cat "$encoder/model_args.txt") --finetune-from-model "$start" \
        --dropout 0.1 --attention-dropout 0.1 --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-06 \
        --weight-decay 0.01 --clip-norm 1.0 --cpu --num-workers 0 --required-batch-size-multiple 1 --no-epoch-checkpoints \
        --save-dir "$run" --log-file "$run/train.log" --log-format simple --log-interval 10 "$@"
}

train() {  # train RUN SETTING DATA START options: unless RUN/done says SETTING; RUN/seconds gets wall, user and system time
    local run=$1 setting=$2
    shift 2
    to_do "$run" "$setting" || return 0
    echo "== $(basename "$run"): $setting"
    local TIMEFORMAT='%R %U %S'
    # Without a buffer, because its thread, still at work when training ends in mid-epoch, may abort the process then.
    { time fairseq_train "$run" "$@" --data-buffer-size 0 >"$run/output.txt" 2>&1; } 2>>"$run/seconds" ||
        { tail -n 5 "$run/output.txt" >&2; die "$run: fairseq-train failed; $run/output.txt says why"; }
    echo "$setting" >"$run/done"
}

some_rows() {  # some_rows FILE HEAD N: its first HEAD lines, and N of its rows, evenly spread: CoLA's stand by their sources
    awk -v rows="$3" -v head="$2" 'NR == FNR { total = FNR - head; next } FNR <= head { print; next }
        { row = FNR - head; if (int(row * rows / total) > int((row - 1) * rows / total)) print }' "$1" "$1"
}

kept() {  # kept FILE COMMAND …: what it prints as FILE, whole or not at all; nothing if FILE is there. FILE.log: its errors
    local file=$1
    shift
    [ ! -f "$file" ] || return 0
    "$@" >"$file.new" 2>"$file.log" || { tail -n 5 "$file.log" >&2; die "$file could not be made; $file.log says why"; }
    mv "$file.new" "$file"
}

running=()
at_once() {  # at_once COMMAND …: beside the script, in a process group of its own, which stop_running ends
    set -m
    "$@" &
    running+=($!)
    set +m
}
wait_until() {  # wait_until N: no more than N of them run; one that failed ends the script
    while [ ${#running[@]} -gt "$1" ]; do
        local pid still=()
        for pid in "${running[@]}"; do
            if kill -0 "$pid" 2>/dev/null; then still+=("$pid"); else wait "$pid"; fi
        done
        running=(${still[@]+"${still[@]}"})
        [ ${#running[@]} -le "$1" ] || sleep 0.5
    done
}
stop_running() { for pid in ${running[@]+"${running[@]}"}; do kill -- "-$pid" 2>/dev/null || true; done; }

work_alone() {  # one script in an OUT; when it ends, so does what it started
    exec 9>"$out/.lock"
    flock -n 9 || die "$out: this script, or a training it started, is still at work there"
    trap stop_running EXIT
    trap 'exit 130' INT TERM
}

tabulate() {  # tabulate SCRIPT: its table of OUT, kept and shown
    python "$1" "$out" >"$out/table.md.new"
    mv "$out/table.md.new" "$out/table.md"
    cat "$out/table.md"
}
