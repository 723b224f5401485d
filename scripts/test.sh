#!/usr/bin/env bash
# Sets everything up and runs the tests.
#
#   scripts/test.sh                  the fast tests
#   scripts/test.sh --all            the slow ones too: live oracles (torch), a real model, kill tests
#   scripts/test.sh --asan           kernels, readers and engine in a build of their own that address and
#                                    undefined-behaviour sanitizers watch, with redzones between the regions
#                                    of an arena
#   scripts/test.sh [--all] -- ARGS  ARGS go to pytest; -n 0 runs all tests in one process
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

EXTRAS="test"
SELECT=()
ASAN=
if [ "${1:-}" = --asan ]; then
    ASAN=1
    shift
fi
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
if [ -n "$ASAN" ]; then
    source "$ROOT/scripts/sanitized.sh"
    run_sanitized "$@"
    exit
fi
# two processes, each of which takes whole files, so that what a file's tests share is made once
exec "$VENV/bin/python" -m pytest -n 2 --dist loadfile ${SELECT[@]+"${SELECT[@]}"} "$@"
