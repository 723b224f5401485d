import subprocess
import sys
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from uringinfer.container.checksum import crc32, crc32_combine


@given(st.binary(max_size=300), st.binary(max_size=5000))
def test_combined_checksums_are_zlibs_of_the_joined_bytes(first, second):
    combined = crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(first + second)


def test_a_checksum_continues_over_arrays_and_bytes():
    data = np.arange(100_000, dtype=np.uint32).view(np.uint8)
    assert crc32(data[777:], crc32(data[:777].tobytes())) == zlib.crc32(data)


def test_without_isal_zlib_computes_the_same():
    program = (
        "import sys; sys.modules['isal'] = None\n"
        "from uringinfer.container import checksum\n"
        "print(checksum.PROVIDER, checksum.crc32(b'123456789'))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # 0xCBF43926 is the check value that is published for this CRC
    assert run.stdout.split() == ["zlib", str(0xCBF43926)]
