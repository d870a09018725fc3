#!/usr/bin/env bash
# Creates .venv with fairseq_adv (pip install -e) and everything that it needs. Does nothing if setup.py,
# constraints.txt and the Python have not changed since the last call. Installs with uv if it is on PATH, else
# with the pip of that Python; either way, constraints.txt pins the versions. Needs no compiler.
#
#   scripts/setup_env.sh              for development: includes what the tests need
#   scripts/setup_env.sh --no-test    for use only
#
#   PYTHON=python3.12  Python to use, 3.10 to 3.14 (default: that of an existing environment, else python3)
#   VENV=DIR           folder of the environment (default: .venv in the project)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 2; }
say() { printf '== %s\n' "$*"; }

extras='[test]'
case "${1:-}" in
    '') ;;
    --no-test) extras='[hf,plots]' ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "scripts/${0##*/}"; exit 0 ;;
    *) die "unknown option '$1' (see $0 --help)" ;;
esac

venv=${VENV:-.venv}
half_made() {  # venv writes bin/activate last, after pip; without it, one was interrupted, or had no ensurepip
    [ -f "$venv/pyvenv.cfg" ] && [ ! -f "$venv/bin/activate" ] && { [ -z "${VENV:-}" ] || [ ! -e "$venv/bin/pip" ]; }
}
python=${PYTHON:-}
if [ -z "$python" ]; then  # an existing environment keeps its Python
    python=python3
    half_made || ! "$venv/bin/python" -c '' 2>/dev/null || python=$venv/bin/python
fi
command -v "$python" >/dev/null || die "'$python' was not found: install Python 3.10 to 3.14, or set PYTHON=/path/to/python3"
version=$("$python" -c 'import platform; print(platform.python_version())')
case "$version" in
    3.10.* | 3.11.* | 3.12.* | 3.13.* | 3.14.*) ;;
    *) die "'$python' is Python $version, but fairseq_adv supports 3.10 to 3.14: set PYTHON=/path/to/one of these, or use fairseq_adv 0.3, which supports 3.9" ;;
esac

# What the environment was made from. One with the test tools is also accepted with --no-test.
made_from=$({ cat setup.py constraints.txt fairseq_adv_compat.pth; echo "$version $PWD"; } | "$python" -c \
    'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
stamp=$venv/fairseq_adv.stamp
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ]; then
    have=$(cat "$stamp")
    if [ "$have" = "$made_from [test]" ] || [ "$have" = "$made_from $extras" ]; then
        say "$venv is up to date (Python $version)"
        exit 0
    fi
fi

# fairseq 0.12.2 compiles two modules, if it can; fairseq_adv_compat has the same in Python.
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
compiler=()
if echo '#include <Python.h>' | "${CXX:-c++}" -x c++ -fsyntax-only -I"$include" - 2>/dev/null; then
    compiler=(--compiler)
else
    say "no C++ compiler or no Python.h was found: fairseq is installed without its compiled modules (same results)"
fi

if half_made || [ ! -x "$venv/bin/python" ] ||
    [ "$("$venv/bin/python" -c 'import platform; print(platform.python_version())')" != "$version" ]; then
    # --clear, which also repairs an environment, would empty any other folder, such as conda's or another project's.
    # A stamp tells of an installation there, not of who made the rest.
    [ ! -e "$venv" ] || [ -z "$(ls -A "$venv")" ] || half_made || { [ -z "${VENV:-}" ] && [ -f "$venv/pyvenv.cfg" ]; } ||
        die "$venv is not empty, and not an environment with Python $version. Nothing was changed. Delete it if it is this project's, or pass another VENV or PYTHON"
    say "creating $venv (Python $version)"
    "$python" -m venv --clear "$venv" ||
        die "'$python -m venv' failed (Debian, Ubuntu: apt install python${version%.*}-venv)"
fi
rm -f "$stamp"
say "downloading wheels that this pip installs (scripts/repack_wheels.py)"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
with_pip=$venv/bin/python  # uv makes environments without pip
for one in "$venv/bin/python" "$python" python3; do
    ! "$one" -m pip --version >/dev/null 2>&1 || { with_pip=$one; break; }
done
"$with_pip" scripts/repack_wheels.py ${compiler[@]+"${compiler[@]}"} "$wheels" >/dev/null
had_audio=$("$venv/bin/python" -c 'import importlib.util as i; print(bool(i.find_spec("torchaudio")))')
if ! command -v nvidia-smi >/dev/null && ! "$venv/bin/python" -c 'import importlib.util as i, sys; sys.exit(not i.find_spec("torch"))'
then
    say "no NVIDIA driver was found, but torch comes with CUDA, in gigabytes, unless pip has an index of CPU builds;" \
        "a torch that is already in $venv is kept (docs/start.md, Install)"
fi
say "installing fairseq_adv and its dependencies (downloads torch)"
if command -v uv >/dev/null; then
    uv pip install --python "$venv/bin/python" --find-links "$wheels" -c constraints.txt -e ".$extras"
else
    "$venv/bin/python" -m pip install --disable-pip-version-check --find-links "$wheels" -c constraints.txt -e ".$extras"
fi
# Compiled, fairseq requires torchaudio. Where that can't be loaded (its wheels need CUDA's torch), transformers, which
# imports what is installed, would fail too.
if ! "$venv/bin/python" -c 'import importlib.util as i; i.find_spec("torchaudio") and __import__("torchaudio")' 2>/dev/null; then
    if [ "$had_audio" = True ]; then
        say "torchaudio, which was there before, can't be loaded beside this torch: transformers will fail until you replace or remove it"
    else
        say "removing torchaudio, which can't be loaded beside this torch; nothing here needs it"
        if command -v uv >/dev/null; then
            uv pip uninstall --quiet --python "$venv/bin/python" torchaudio
        else
            "$venv/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes torchaudio
        fi
    fi
fi
echo "$made_from $extras" >"$stamp.new"
mv "$stamp.new" "$stamp"
say "done: . $venv/bin/activate"
