#!/usr/bin/env bash
# Fills the grid of examples/evidence, cell by cell: what each method gains, on how much data, at what price.
#
#   examples/evidence/run.sh DATA OUT [--jobs N] [--device cpu|cuda] [--stop-after MINUTES]
#
# Takes the next cell that has no record, trains, evaluates, appends one record to examples/evidence/records, and goes on.
# Stop it at any time: the same command resumes. See examples/evidence/README.md, or --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$here/../../.venv/bin/python
[ -x "$python" ] || python=python
exec "$python" "$here/fill.py" "$@"
