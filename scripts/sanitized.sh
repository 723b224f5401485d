# shellcheck shell=bash
# Sourced by test.sh --asan: a copy of the sources below build/, compiled with sanitizers, and tests in it.

SANITIZED=$ROOT/build/sanitized
SANITIZERS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
# what goes through compiled code or through an arena; not what measures memory, which sanitizers take for
# themselves, or kills processes
SANITIZED_TESTS=(tests/kernels tests/residency tests/storage/test_reader_contract.py
    tests/storage/test_uring_reader.py tests/models/test_golden_logits.py tests/engine/test_only_time_changes.py
    tests/engine/test_generation.py tests/engine/test_session.py tests/faults/test_faulty_reads.py)

# run_sanitized ARGS: ARGS go to pytest
run_sanitized() {
    local runtime options
    mkdir -p "$SANITIZED"
    # the compiled modules of the ordinary build stay where they are
    tar -C "$ROOT" --exclude='*.so' --exclude=__pycache__ --exclude=./build --exclude=./.git --exclude=./.venv \
        --exclude=./demo -cf - . | tar -C "$SANITIZED" -xf -
    cd "$SANITIZED"
    say "building with $SANITIZERS"
    URINGINFER_SANITIZE=$SANITIZERS "$VENV/bin/python" setup.py -q build_ext --inplace
    runtime="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)"
    # Python and its libraries keep what they allocated until the end: leaks are not looked for
    options=detect_leaks=0:halt_on_error=1:abort_on_error=1:allocator_may_return_null=1
    local selected=("$@")
    [ $# -gt 0 ] || selected=("${SANITIZED_TESTS[@]}")
    LD_PRELOAD=$runtime ASAN_OPTIONS=$options UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 PYTHONPATH=$SANITIZED \
        "$VENV/bin/python" -m pytest -n 0 -p no:cacheprovider "${selected[@]}"
}
