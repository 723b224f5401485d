"""Under an address sanitizer, compiled code that reads beside a region of an arena is stopped there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = "int byte_at(const unsigned char *address) { return *address; }\n"
READER = """
import ctypes, sys
from uringinfer.storage.arena import Arena
byte_at = ctypes.CDLL(sys.argv[1]).byte_at
byte_at.argtypes = [ctypes.c_void_p]
arena = Arena(1 << 20)
first, second = arena.carve(1000), arena.carve(1000)
first[:], second[:] = 7, 9
print(byte_at(first.ctypes.data + int(sys.argv[2])))
"""


def sanitizer():
    """The runtime to preload, or None where there is none."""
    if shutil.which("cc") is None:
        return None
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    return path if Path(path).is_absolute() else None


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if sanitizer() is None:
        pytest.skip("needs a C compiler with an address sanitizer")
    directory = tmp_path_factory.mktemp("sanitized")
    (directory / "read.c").write_text(SOURCE)
    command = [
        "cc",
        "-fsanitize=address",
        "-shared",
        "-fPIC",
        directory / "read.c",
        "-o",
        directory / "read.so",
    ]
    subprocess.run(command, check=True)
    return directory / "read.so"


def read_at(library, offset):
    environment = os.environ | {
        "LD_PRELOAD": sanitizer(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.run(
        [sys.executable, "-c", READER, library, str(offset)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_the_last_byte_of_a_region_is_read_and_the_next_one_is_an_error(library):
    assert read_at(library, 999).stdout == "7\n"
    beside = read_at(library, 1000)
    assert beside.returncode != 0
    assert "use-after-poison" in beside.stderr and "byte_at" in beside.stderr


def test_between_regions_all_is_an_error(library):
    for offset in (1500, 4095, 4096, 8191):
        assert read_at(library, offset).returncode != 0
