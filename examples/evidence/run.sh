#!/usr/bin/env bash
# Fills the grid of examples/evidence, cell by cell: does it pay to tune the learning rate, or to train with FreeLB?
#
#   examples/evidence/run.sh DATA OUT [--plan]
#
# Takes the next cell that has no record, trains, measures, writes its record to examples/evidence/records, and goes on.
# Stop it at any time: the same command resumes. See examples/evidence/README.md, or --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$here/../../.venv/bin/python
[ -x "$python" ] || python=python
exec "$python" "$here/fill.py" "$@"
