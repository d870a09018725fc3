# Sourced by the scripts of glue, alum and flooding, which set here, their own folder: checks what they are given, reads
# their options, makes one fairseq-train command of a yaml that has groups, shows it and becomes it.
fail() { echo "error: $*" >&2; exit 2; }

# The options after the words that stand first: sets recipe (for composed_options.py), extra (for fairseq-train), from, fp32,
# dry_run.
read_options() {
    recipe=() extra=() from='' dry_run='' fp32=''
    while [ $# -gt 0 ]; do
        case $1 in
            --method | --gpus | --encoder | --from)
                [ $# -ge 2 ] || fail "$1 needs a value"
                if [ "$1" = --from ]; then from=$2; else recipe+=("$1" "$2"); fi
                shift 2 ;;
            --from=*) from=${1#*=}; shift ;;
            --method=* | --gpus=* | --encoder=*) recipe+=("$1"); shift ;;
            --dry-run) dry_run=1; shift ;;
            --fp32) fp32=1; shift ;;
            *) extra+=("$1"); shift ;;
        esac
    done
}

# check_glue_data DATA ENCODER_DIR: DATA is what scripts/prepare_glue.py wrote, with the encoder's own dictionary.
check_glue_data() {
    [ -f "$1/input0/dict.txt" ] ||
        fail "$1/input0/dict.txt: no such file. Prepare the data with scripts/prepare_glue.py"
    [ -f "$2/dict.txt" ] && ! cmp -s <(cut -d' ' -f1 "$1/input0/dict.txt") <(cut -d' ' -f1 "$2/dict.txt") || return 0
    fail "$1 was prepared with another dictionary than $2/dict.txt: the word ids would be wrong. Prepare it" \
        "again with scripts/prepare_glue.py … --encoder $2, or --srcdict $2/dict.txt"
}

# launch YAML DATA ENCODER_DIR CHECKPOINT SAVE_DIR [words for composed_options.py]; CHECKPOINT empty: random weights.
launch() {
    local yaml=$1 data=$2 encoder=$3 start=$4 save=$5 python lines line user_dir sizes
    shift 5
    local options=() words=()
    python=$(command -v python3 || command -v python) || fail "no Python found: activate the project's environment"
    # One word a line: no option of a yaml holds a line break.
    lines=$("$python" "$here/../composed_options.py" "$here/config/$yaml" "$@" ${recipe[@]+"${recipe[@]}"}) || exit 2
    while IFS= read -r line; do [ "$fp32$line" = 1--fp16 ] || options+=("$line"); done <<<"$lines"
    if [ -n "$start" ]; then
        [ -f "$start" ] || fail "$start: no such file. examples/glue/README.md tells where the pre-trained RoBERTa comes from"
        options+=(--finetune-from-model "$start")
    fi
    if [ -n "$encoder" ] && [ -f "$encoder/model_args.txt" ]; then  # a converted encoder says how large it is
        read -r -a sizes <"$encoder/model_args.txt" || true
        options+=(${sizes[@]+"${sizes[@]}"})
    fi
    user_dir=$("$python" -m fairseq_adv_cli user-dir) || exit 2
    words=(fairseq-train "$data" --user-dir "$user_dir" --save-dir "$save" "${options[@]}" ${extra[@]+"${extra[@]}"})
    printf '%q ' "${words[@]}"; echo
    [ -z "$dry_run" ] || exit 0
    command -v fairseq-train >/dev/null || fail "fairseq-train is not on the path: activate the project's environment"
    exec "${words[@]}"
}
