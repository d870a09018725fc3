#!/usr/bin/env bash
# Installs and runs fairseq_adv on every Python it supports, with the oldest and the newest torch for each,
# and prints a table of the results. Downloads gigabytes and takes hours; not part of .ci/run.
#
#   scripts/compat_matrix.sh            all cells that have not passed yet
#   scripts/compat_matrix.sh CELL...    these cells, by the names that --list prints (3.10-oldest, 3.12-newest, ...)
#   scripts/compat_matrix.sh --list     list the cells
#   scripts/compat_matrix.sh --table    print the table of the results so far
#
# Each cell gets a fresh environment, which is removed after it: an install (with -e and without, in turn),
# scripts/compat_smoke.py, and the tests of the compatibility code. Logs and rows stay in .matrix/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repo=$PWD
out=$repo/.matrix

# name, Python, pip's requirements, how it is installed. torch 2.10 is the first whose weights_only holds.
cells='
3.10-oldest  3.10  torch==2.6.0  numpy<2   wheel
3.10-newest  3.10  torch         numpy     -e
3.11-oldest  3.11  torch==2.6.0  numpy     -e
3.11-2.10    3.11  torch==2.10.0 numpy     -e
3.11-newest  3.11  torch         numpy     wheel
3.12-oldest  3.12  torch==2.6.0  numpy<2   wheel
3.12-newest  3.12  torch         numpy     -e
3.13-oldest  3.13  torch==2.6.0  numpy     -e
3.13-newest  3.13  torch         numpy     wheel
3.14-newest  3.14  torch         numpy     -e
'
cells=$(grep -v '^$' <<<"$cells")

table() {
    echo '| Python | torch | numpy | installed | result | notes |'
    echo '|---|---|---|---|---|---|'
    while read -r name _; do
        [ ! -f "$out/$name/row" ] || cat "$out/$name/row"
    done <<<"$cells"
}

# A Python of this version: python3.X if it runs, else pyenv's newest 3.X.
find_python() {
    local found
    for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$found" -c '' 2>/dev/null; then
            echo "$found"
            return
        fi
    done
    return 1
}

# Writes the cell's row of the table; the exit status is 0 if the cell passed.
run_cell() {
    local name=$1 version=$2 torch=$3 numpy=$4 how=$5
    local dir=$out/$name started=$SECONDS python step result notes log bin
    rm -rf "$dir"
    mkdir -p "$dir"
    log=$dir/log.txt
    bin=$dir/venv/bin
    if ! python=$(find_python "$version"); then
        echo "| $version | ${torch#torch==} | | | not run | no Python $version on this machine |" >"$dir/row"
        return 1
    fi
    echo "== $name: $torch $numpy, $how (log: $log)"
    step='install'
    rm -rf "$repo/build"  # left by an earlier `pip install .`; pip would pack its files, too
    local target=("$repo")
    [ "$how" != -e ] || target=(-e "$repo")
    if "$python" -m venv "$dir/venv" >>"$log" 2>&1 &&
        "$bin/python" scripts/repack_wheels.py --compiler "$dir/wheels" >>"$log" 2>&1 &&
        "$bin/python" -m pip install --disable-pip-version-check --find-links "$dir/wheels" "$torch" "$numpy" pytest \
            'setuptools>=64' "${target[@]}" >>"$log" 2>&1; then
        step='smoke'
        # Run outside the checkout, so that the installed packages are imported.
        if (cd "$dir" && "$bin/python" "$repo/scripts/compat_smoke.py" "$dir/smoke") 2>&1 | tee -a "$log"; then
            step='tests'
            if (cd "$dir" && "$bin/pytest" -q -c "$repo/pyproject.toml" --rootdir "$repo" -p no:cacheprovider \
                "$repo/tests/test_compat.py" "$repo/tests/test_checkpoint_safety.py") 2>&1 | tee -a "$log" | tail -n 4; then
                step=''
            fi
        fi
    fi
    result=${step:+"fails in $step"}
    notes="$(grep -cE ': ok, [0-9]+ s$' "$log") commands, $(tail -n 1 "$log" | sed -E 's/(, [0-9]+ warnings?)? in .*//')"
    [ -z "$step" ] || notes=$(grep -E 'Error|ERROR|error:' "$log" | tail -n 1 | tr '|' '/' | cut -c 1-160)
    [ -x "$bin/python" ] || bin=$(dirname "$python")
    "$bin/python" - "$version" "${torch#torch==}" "$how" "${result:-works}" "$notes" >"$dir/row" <<'PYTHON'
import platform, sys
from importlib.metadata import PackageNotFoundError, version

def have(name, otherwise):
    try:
        return version(name)
    except PackageNotFoundError:
        return otherwise

_, python, torch, how, result, notes = sys.argv
how = "`pip install -e .`" if how == "-e" else "`pip install .`"
print(f"| {platform.python_version()} | {have('torch', torch)} | {have('numpy', '')} | {how} | {result} | {notes} |")
PYTHON
    rm -rf "$dir/venv" "$dir/wheels" "$dir/smoke"
    echo "== $name: ${result:-works} after $((SECONDS - started)) s"
    [ -z "$step" ]
}

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
wanted=''
case "${1:-}" in
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "scripts/${0##*/}"; exit 0 ;;
    --list) awk '{ print $1 }' <<<"$cells"; exit 0 ;;
    --table) table; exit 0 ;;
    *) wanted=" $* " ;;
esac
for name in "$@"; do
    grep -q "^$name " <<<"$cells" || { echo "error: no cell '$name' (see $0 --list)" >&2; exit 2; }
done

failed=0
while read -r name version torch numpy how <&3; do
    if [ "$#" -eq 0 ]; then
        ! grep -q '| works |' "$out/$name/row" 2>/dev/null || continue
    elif [[ $wanted != *" $name "* ]]; then
        continue
    fi
    run_cell "$name" "$version" "$torch" "$numpy" "$how" || failed=1
done 3<<<"$cells"
echo
table
exit "$failed"
