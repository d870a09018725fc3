#!/usr/bin/env bash
# Creates .venv with fairseq_adv, installed with -e, and everything that it needs. Run again, it does
# nothing while setup.py, constraints.txt and the Python are the same. uv installs where it is on PATH, else
# pip; with both, constraints.txt says which versions, and the environment has pip 24.0.
#
#   scripts/setup_env.sh              with what the tests need
#   scripts/setup_env.sh --no-test    only what using it needs
#
#   PYTHON=python3.12  the Python to take (3.9 to 3.13; default: the environment's own, else python3)
#   VENV=DIR           where the environment goes (default: .venv in the project)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 2; }
say() { printf '== %s\n' "$*"; }

extras='[test]'
case "${1:-}" in
    '') ;;
    --no-test) extras='[plots]' ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "unknown option '$1' (see $0 --help)" ;;
esac

venv=${VENV:-.venv}
python=${PYTHON:-}
if [ -z "$python" ]; then  # an environment that is there keeps its Python
    python=python3
    ! "$venv/bin/python" -c '' 2>/dev/null || python=$venv/bin/python
fi
command -v "$python" >/dev/null || die "'$python' was not found: install Python 3.9 to 3.13, or set PYTHON=/path/to/python3"
version=$("$python" -c 'import platform; print(platform.python_version())')
case "$version" in
    3.9.* | 3.10.* | 3.11.* | 3.12.* | 3.13.*) ;;
    *) die "'$python' is Python $version; fairseq 0.12.2 is made to work on 3.9 to 3.13: set PYTHON=/path/to/one of them" ;;
esac

# What the environment was made from. One with the test tools also serves where they are not asked for.
made_from=$({ cat setup.py constraints.txt fairseq_adv_compat.pth; echo "$version"; } | "$python" -c \
    'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
stamp=$venv/fairseq_adv.stamp
if [ -x "$venv/bin/python" ] && [ -f "$stamp" ]; then
    have=$(cat "$stamp")
    if [ "$have" = "$made_from [test]" ] || [ "$have" = "$made_from $extras" ]; then
        say "$venv is up to date (Python $version)"
        exit 0
    fi
fi

# fairseq 0.12.2 comes as source with C++ parts: say now what is missing, not after minutes in pip's log.
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if ! command -v "${CXX:-c++}" >/dev/null; then
    die "no C++ compiler, which fairseq 0.12.2 needs to build (Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc-c++)"
fi
if ! echo '#include <Python.h>' | "${CXX:-c++}" -x c++ -fsyntax-only -I"$include" - 2>/dev/null; then
    die "Python.h of Python $version was not found under $include, which fairseq 0.12.2 needs to build" \
        "(Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)"
fi

if [ ! -x "$venv/bin/python" ] || [ "$("$venv/bin/python" -c 'import platform; print(platform.python_version())')" != "$version" ]; then
    say "creating $venv (Python $version)"
    "$python" -m venv --clear "$venv" ||
        die "'$python -m venv' failed (Debian, Ubuntu: apt install python3-venv)"
fi
rm -f "$stamp"
# The last pip that takes the metadata of omegaconf 2.0.x, which fairseq 0.12.2 asks for; "pip<24.1" would keep
# an older one. With uv too: fairseq-adv fetch runs pip.
say "installing pip 24.0"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'pip==24.0'
say "installing fairseq_adv and what it needs; torch is large, and fairseq is built (minutes the first time)"
if command -v uv >/dev/null; then
    uv pip install --python "$venv/bin/python" -c constraints.txt -e ".$extras"
else
    "$venv/bin/python" -m pip install --disable-pip-version-check -c constraints.txt -e ".$extras"
fi
echo "$made_from $extras" >"$stamp.new"
mv "$stamp.new" "$stamp"
say "done: . $venv/bin/activate"
