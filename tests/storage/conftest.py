"""Files of random bytes, and both readers under one name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from uringinfer.environment import native_enabled
from uringinfer.storage.denial import Denial
from uringinfer.storage.direct import StorageFile, open_file
from uringinfer.storage.reader import Reader, open_reader
from uringinfer.storage.uring import open_ring


@pytest.fixture(scope="session")
def content() -> NDArray[np.uint8]:
    """3 MiB of random bytes, so that a byte in the wrong place shows."""
    return np.random.default_rng(7).integers(0, 256, 3 << 20, dtype=np.uint8)


@pytest.fixture(scope="session")
def content_path(tmp_path_factory: pytest.TempPathFactory, content: NDArray[np.uint8]) -> Path:
    path = tmp_path_factory.mktemp("storage") / "content.bin"
    path.write_bytes(content.tobytes())
    return path


@pytest.fixture
def file(content_path: Path) -> Iterator[StorageFile]:
    with open_file(content_path) as opened:
        yield opened


@pytest.fixture(params=["uring", "preadv"])
def open_one(request: pytest.FixtureRequest) -> Iterator[Callable[..., Reader]]:
    """Opens readers of one kind and closes them; each contract test runs with both kinds."""
    if request.param == "uring":
        if not native_enabled():
            pytest.skip("URINGINFER_NATIVE=0 forbids io_uring in this run")
        ring = open_ring(1)
        if isinstance(ring, Denial):
            pytest.skip(f"no io_uring here: {ring.reason}")
        ring.close()
    opened: list[Reader] = []

    def open_kind(**options: object) -> Reader:
        opened.append(open_reader(request.param, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_kind
    for reader in opened:
        reader.close()
