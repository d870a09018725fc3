#!/usr/bin/env bash
# The three stages of ARC: RACE, the union of the exams, both ARC sets. Only the last is trained with FreeLB, as in the paper.
# usage: run.sh STAGE DATA ROBERTA_DIR SAVE_DIR [options] [fairseq-train options]
#   STAGE         race (plain), union (plain; --from RACE's checkpoint) or arc (FreeLB; --from the union's checkpoint)
#   DATA          folders of data sets, joined by colons: ARC-Easy:ARC-Challenge
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "error: $*" >&2; exit 2; }

stage=${1-}
yaml=config/$stage.yaml method=standard
case $stage in
    race) yaml=../race/config/race.yaml ;;
    union) ;;
    arc) method=freelb ;;
    "" | -h | --help) exec "$here/../run_task.sh" "$here" . "$@" ;;
    *) fail "$stage: no such stage. The stages are race, union and arc" ;;
esac
shift
[ $# -ge 3 ] || exec "$here/../run_task.sh" "$here" . "$@"
if [ "$stage" != race ]; then  # without it the stage would start from RoBERTa, and nobody would notice
    case " $* " in
        *" --from "* | *" --from="*) ;;
        *) fail "the stage $stage starts from the one before: add --from CHECKPOINT (or --from $2/model.pt to leave out" \
            "the stages before)" ;;
    esac
fi
words=("${@:1:3}" --method "$method" "${@:4}")  # the user's --method comes later and wins
exec "$here/../run_task.sh" "$here" "$yaml" "${words[@]}"
