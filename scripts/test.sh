#!/usr/bin/env bash
# Sets everything up and runs the tests.
#
#   scripts/test.sh                  the fast tests
#   scripts/test.sh --all            the slow ones too: live oracles (torch), a real model, kill tests
#   scripts/test.sh [--all] -- ARGS  ARGS go to pytest
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

EXTRAS="test"
SELECT=()
if [ "${1:-}" = --all ]; then
    EXTRAS=test,oracle
    SELECT=(-m "slow or not slow")
    shift
fi
[ "${1:-}" != -- ] || shift

install_system_packages
install_package "$EXTRAS"
if [ "$EXTRAS" = "test,oracle" ]; then
    URINGINFER_SMOLLM2=$(fetch_smollm2 "$ROOT/demo")
    export URINGINFER_SMOLLM2
fi
cd "$ROOT"
exec "$VENV/bin/python" -m pytest ${SELECT[@]+"${SELECT[@]}"} "$@"
