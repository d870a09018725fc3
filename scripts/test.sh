#!/usr/bin/env bash
# Sets up .venv if needed and runs the tests. Arguments go to pytest: scripts/test.sh tests/test_cli.py -x
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh
export PATH="${VENV:-$PWD/.venv}/bin:$PATH"  # tests run fairseq's console commands
# The models of the tests are tiny: more threads make them slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec python -m pytest "$@"
