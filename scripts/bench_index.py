"""How long half a million tensors take: the index of Kimi K3's 96 shards, its layout, its manifest.

    python scripts/bench_index.py SKELETON        # made by scripts/make_skeleton.py if it is not there

Reports wall and processor seconds of each step and the process' peak memory after it. No weights are read:
the skeleton has none, and the container whose manifest is opened at the end is hollow too (SKELETON.uring).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kimi_k3_layout import text_config
from make_skeleton import write_skeleton

from uringinfer.container import Container
from uringinfer.models import model_from_config
from uringinfer.packing.checkpoint import CheckpointSource
from uringinfer.packing.layout import Layout, make_layout


@contextmanager
def step(name: str) -> Iterator[None]:
    """Prints what the block took."""
    wall, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    yield
    now = resource.getrusage(resource.RUSAGE_SELF)
    processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    print(
        f"{name:28} {time.perf_counter() - wall:6.2f} s {processor:8.2f} s of processor"
        f"   peak {now.ru_maxrss / 1000:5.0f} MB"
    )


def write_hollow_container(out: Path, layout: Layout) -> None:
    """The manifest, and files of the right lengths with nothing in them."""
    out.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, int] = {}
    for block in layout.blocks:
        sizes[block.file] = max(sizes.get(block.file, 0), block.offset + block.nbytes)
    for name, nbytes in sizes.items():
        with (out / name).open("wb") as file:
            file.truncate(nbytes)
    (out / "manifest.json").write_text(layout.manifest.to_json())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("skeleton", type=Path)
    parser.add_argument("--segment", choices=["auto", "layer"], default="auto")
    options = parser.parse_args()
    if not options.skeleton.exists():
        write_skeleton(options.skeleton, text_config())
    with step("index of the checkpoint"):
        source = CheckpointSource.open(options.skeleton)
    with step("layout of the container"):
        layout = make_layout(model_from_config(source.config), source, options.segment)
    out = options.skeleton.with_suffix(".uring")
    write_hollow_container(out, layout)
    with step("opening the container"):
        container = Container.open(out)
    segments, experts = len(container.segments), sum(bank.num_experts for bank in container.banks.values())
    print(f"{len(source.tensors):,} tensors, {segments:,} segments, {experts:,} experts")
    source.close()


if __name__ == "__main__":
    main()
