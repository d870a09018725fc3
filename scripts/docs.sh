#!/usr/bin/env bash
# Builds the documentation site, without network access; open OUT/index.html, no server is needed. Fails if a link
# or anchor is broken, or a page is missing or not listed in mkdocs.yml.
#
#   scripts/docs.sh [OUT]    output folder, relative to the project's (default: out/site)
#
#   SOURCE_URL=URL   links to files that are not pages go to URL/PATH; without it they are plain names
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "scripts/${0##*/}"; exit 0 ;;
esac
if [ -z "${SOURCE_URL:-}" ] && [ -n "${GITHUB_REPOSITORY:-}" ]; then  # in GitHub Actions
    export SOURCE_URL="$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/blob/$GITHUB_SHA"
fi
python=${VENV:-.venv}/bin/python
[ -x "$python" ] || python=python3
if ! "$python" -c 'import material, mkdocstrings_handlers.python' 2>/dev/null; then
    echo "error: MkDocs is not installed: scripts/setup_env.sh, or pip install -c constraints.txt -e '.[docs]'" >&2
    exit 2
fi
# Material prints a notice about MkDocs 2, which is not used here.
NO_MKDOCS_2_WARNING=1 exec "$python" -m mkdocs build --strict --site-dir "${1:-out/site}"
