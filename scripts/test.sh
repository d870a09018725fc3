#!/usr/bin/env bash
# Sets up .venv if needed and runs the tests on all cores. Without options: what CI runs on each push.
#
#   scripts/test.sh                              the default lane
#   scripts/test.sh --fast                       a few tests of every package, in about a minute
#   scripts/test.sh --slow                       further combinations, which CI runs every night
#   scripts/test.sh --slurm                      on a real SLURM of two nodes; needs Debian's packages, and root
#   scripts/test.sh [LANE] --installed           with the Python on PATH, as it is, instead of .venv
#   scripts/test.sh tests/cli -x                 other arguments are passed to pytest
#
#   WORKERS=N   number of test processes (default: one per core, if there is .9 GB of memory for each; 0: run in
#               pytest's own process)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lane=(-m 'not slow and not slurm') installed='' fast=''
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) sed -n '2,12s/^# \{0,1\}//p' "scripts/${0##*/}"; exit 0 ;;
        --fast) lane=(-m 'fast and not slow') fast=yes ;;
        --slow) lane=(-m 'slow and not slurm') ;;
        --slurm) lane=(-m slurm tests/cluster) WORKERS=0 ;;
        --installed) installed=yes ;;
        *) break ;;
    esac
    shift
done
if [ -n "$fast" ] && [ $# -eq 0 ]; then  # other files need not even be read
    mapfile -t files < <(grep -rl 'mark\.fast' tests --include='test_*.py')
    set -- "${files[@]}"
fi
if [ -z "$installed" ]; then
    scripts/setup_env.sh
    bin=$(CDPATH='' cd -- "${VENV:-.venv}/bin" && pwd)
    export PATH="$bin:$PATH"  # tests run fairseq's console commands, also in other folders
fi
# The models of the tests are tiny: more threads make them slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# A worker takes up to .9 GB. Where Linux tells what is free, and a container its limit, no more are started.
most=$(awk '/^MemAvailable:/ {print int($2 * 1024 / 9e8)} /^[0-9]+$/ {print int($1 / 9e8)}' \
    /proc/meminfo /sys/fs/cgroup/memory.max 2>/dev/null | sort -n | head -n 1) || true
[ "$most" != 0 ] || most=1
exec python -m pytest -n "${WORKERS:-auto}" ${most:+--maxprocesses="$most"} --dist worksteal "${lane[@]}" "$@"
