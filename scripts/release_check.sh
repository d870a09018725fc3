#!/usr/bin/env bash
# Builds the sdist and the wheel into dist/ and checks them as a user would get them: twine check --strict, an install
# into empty environments with the newest pip and uv, the fast lane of the sdist's own tests on the installed package, and
# fairseq_adv.loop beside torch alone. Beside dist/ it makes repacked/, the wheels of fairseq and omegaconf for the release.
#
#   scripts/release_check.sh                    the wheel
#   scripts/release_check.sh --sdist            the sdist instead
#   scripts/release_check.sh --build-only       no install, no tests
#
#   PYTHON=python3.10          the Python to check with (default: python3)
#   OUT=DIR                    where the environments go (default: a temporary folder, removed at the end)
#   FAIRSEQ_ADV_URL=https://…  the repository, for README's links on PyPI (GitHub Actions sets its own variables)
#
# The workflow "release" runs it on the oldest and the newest Python for each tag v*. It downloads gigabytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 2; }
say() { printf '== %s\n' "$*"; }

kind=wheel
case "${1:-}" in
    '') ;;
    --sdist) kind=sdist ;;
    --build-only) kind='' ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "scripts/${0##*/}"; exit 0 ;;
    *) die "unknown option '$1' (see $0 --help)" ;;
esac
python=${PYTHON:-python3}
command -v "$python" >/dev/null || die "'$python' was not found: set PYTHON=/path/to/python3"
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' fairseq_adv/__init__.py)
if [ "${GITHUB_REF_TYPE:-}" = tag ] && [ "$GITHUB_REF_NAME" != "v$version" ]; then
    die "the tag is $GITHUB_REF_NAME, but fairseq_adv/__init__.py has version $version"
fi
grep -q "^## $version – " CHANGELOG.md || die "CHANGELOG.md has no section '## $version – DATE'"
grep -q "^version: $version\$" CITATION.cff || die "CITATION.cff does not have version $version"

if [ -z "${OUT:-}" ]; then
    OUT=$(mktemp -d)
    trap 'rm -rf "$OUT"' EXIT
fi
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
environment() {  # environment NAME: creates it, with the newest pip
    "$python" -m venv --clear "$OUT/$1"
    "$OUT/$1/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
}
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH

say "building fairseq_adv $version with $("$python" --version)"
environment tools
"$OUT/tools/bin/pip" install --quiet -c constraints.txt build twine
rm -rf dist repacked
"$OUT/tools/bin/python" scripts/repack_wheels.py repacked
"$OUT/tools/bin/python" -m build --outdir dist . >"$OUT/build.log" 2>&1 || { tail -n 20 "$OUT/build.log" >&2; exit 1; }
sdist=$PWD/dist/fairseq_adv-$version.tar.gz wheel=$PWD/dist/fairseq_adv-$version-py3-none-any.whl
ls "$sdist" "$wheel"
"$OUT/tools/bin/twine" check --strict dist/*
[ -n "$kind" ] || exit 0

say "the $kind without its dependencies, beside torch"
environment alone
"$OUT/alone/bin/pip" install --quiet -c constraints.txt torch
"$OUT/alone/bin/pip" install --quiet --no-deps "${!kind}"
"$OUT/alone/bin/python" scripts/loop_smoke.py

# What a user without a clone does with a release's files (docs/start.md). Of the tested versions only torch's is fixed.
by_name() {  # by_name INSTALLER …
    environment by-name
    grep '^torch==' constraints.txt >"$OUT/torch.txt"
    "$@" -c "$OUT/torch.txt" --find-links dist --find-links repacked "fairseq_adv[hf]==$version"
    (
        cd "$OUT" && PATH=$OUT/by-name/bin:$PATH
        fairseq-adv doctor
        [ -d minilm ] || fairseq-adv fetch minilm minilm
        printf '%s\n' text,label 'a good film,yes' 'a bad film,no' 'good,yes' 'bad,no' >rows.csv
        rm -rf rows trained
        fairseq-adv prepare classification rows.csv --valid rows.csv --text text --label label --encoder minilm rows
        fairseq-adv train rows --encoder minilm --criterion freelb --save-dir trained --max-epoch 1 --cpu
    )
}
say "installing fairseq_adv by name from the release's files, with the newest pip, then with uv"
by_name "$OUT/by-name/bin/python" -m pip install --quiet

say "installing the $kind with uv, then fairseq with a compiler: uv must not have kept the repacked one for it"
"$OUT/tools/bin/pip" install --quiet uv
for name in repacked compiled; do
    uv=("$OUT/tools/bin/uv" pip install --quiet --cache-dir "$OUT/uv-cache" --python "$OUT/$name/bin/python" -c constraints.txt)
    "$OUT/tools/bin/uv" venv --quiet --python "$python" "$OUT/$name"
    if [ "$name" = repacked ]; then
        "${uv[@]}" --find-links repacked "${!kind}"
        "$OUT/repacked/bin/fairseq-adv" doctor
        by_name "$OUT/tools/bin/uv" pip install --quiet --cache-dir "$OUT/uv-cache" --python "$OUT/by-name/bin/python"
    elif command -v "${CXX:-c++}" >/dev/null; then
        "${uv[@]}" --no-deps fairseq
        compgen -G "$OUT/compiled/lib/python3*/site-packages/fairseq/data/data_utils_fast.*.so" >/dev/null ||
            die "uv installed fairseq without its compiled modules from its cache"
    fi
done

say "installing the $kind into an empty environment"
environment env
"$OUT/env/bin/pip" install --quiet --find-links repacked -c constraints.txt "${!kind}[test]"
mkdir -p "$OUT/tests"
tar -xzf "$sdist" -C "$OUT/tests" --strip-components 1
cd "$OUT/tests"
# The tests must import the installed packages, not those of the sdist.
site=$("$OUT/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for package in fairseq_adv fairseq_adv_compat; do
    rm -rf "$package"
    ln -s "$site/$package" "$package"
done
export PATH=$OUT/env/bin:$PATH
[ "$(fairseq-adv --version)" = "fairseq_adv $version" ] || die "fairseq-adv --version prints $(fairseq-adv --version)"
fairseq-adv doctor
say "the fast lane"
scripts/test.sh --installed --fast -q
say "fairseq_adv $version: the $kind passes on $(python --version)"
