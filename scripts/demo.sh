#!/usr/bin/env bash
# From nothing to generated text: installs, fetches a small real model, packs, verifies, plans, generates.
#
#   scripts/demo.sh [QUESTION]
#
# Everything stays below .venv and demo/ in the checkout; a second run repeats only the last steps.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

QUESTION=${1:-"What is the capital of France?"}
BUDGET=${URINGINFER_DEMO_BUDGET:-250M}
CONTAINER=demo/smollm2.uring

run() { say "uringinfer $*"; "$VENV/bin/uringinfer" "$@"; }

install_system_packages
install_package ""
cd "$ROOT"
MODEL=$(fetch_smollm2 demo)
# the file's matrices are Q4_1, and would all fit into the budget as they are: as bf16 there is something to stream
[ -f "$CONTAINER/manifest.json" ] || run pack "$MODEL" "$CONTAINER" --tensor 'layers\..*_proj=bf16'
run verify "$CONTAINER"
run plan "$CONTAINER" --budget "$BUDGET" -c 512 --measure
run generate "$CONTAINER" --budget "$BUDGET" -c 512 --temp 0 -n 64 -p "$QUESTION"
