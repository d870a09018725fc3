#!/usr/bin/env bash
# Builds the sdist and the wheel into dist/ and checks them as a user would get them: twine check --strict, an install
# into an empty environment, the fast lane of the sdist's own tests on the installed package, and fairseq_adv.loop beside
# torch alone.
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
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
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
environment() {  # environment NAME: creates it, with a pip that accepts the metadata of omegaconf 2.0.x
    "$python" -m venv --clear "$OUT/$1"
    "$OUT/$1/bin/python" -m pip install --quiet --disable-pip-version-check 'pip==24.0'
}
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH

say "building fairseq_adv $version with $("$python" --version)"
environment tools
"$OUT/tools/bin/pip" install --quiet -c constraints.txt build twine
rm -rf dist
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

say "installing the $kind into an empty environment"
environment env
"$OUT/env/bin/pip" install --quiet -c constraints.txt "${!kind}[test]"
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
