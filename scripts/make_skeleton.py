"""Makes a checkpoint of Kimi K3 in its real size whose data is a hole: real names, dtypes, shapes and
offsets, no weights.

    python scripts/make_skeleton.py OUT          # 96 shards, 497,220 tensors, 1.56 TB of holes, 130 MB on
    disk

Every shard is its safetensors header and a hole of the right length (`truncate`), so the file system must
support sparse files. What packs, plans and verifies headers can be tested on it; its weights read as zeros.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kimi_k3_layout import Tensor, files, text_config, vision_files
from make_kimi_k3 import header_of, write_index

from uringinfer.units import format_size


def shards(text: dict[str, Any]) -> Iterator[tuple[str, list[Tensor]]]:
    """The name and the tensors of every file of the release: layers, the rest, the vision tower."""
    everything = [*files(text), *vision_files()]
    for number, tensors in enumerate(everything, start=1):
        yield f"model-{number:05d}-of-{len(everything):05d}.safetensors", tensors


def write_skeleton(out: Path, text: dict[str, Any]) -> tuple[int, int]:
    """Writes the checkpoint of this text config; returns (tensors, bytes of data)."""
    out.mkdir(parents=True, exist_ok=True)
    written = dict(shards(text))
    for name, tensors in written.items():
        header = header_of(tensors)
        with (out / name).open("wb") as file:
            file.write(header)
            file.truncate(len(header) + sum(tensor.nbytes for tensor in tensors))
    write_index(out, text, written)
    flat = [tensor for tensors in written.values() for tensor in tensors]
    return len(flat), sum(tensor.nbytes for tensor in flat)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    count, nbytes = write_skeleton(options.out, text_config())
    print(f"{options.out}: {count:,} tensors, {format_size(nbytes)} of holes")


if __name__ == "__main__":
    main()
