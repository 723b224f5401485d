"""A small container with every kind of thing in it, written by hand rather than by the packer."""

import json
import zlib
from pathlib import Path

import numpy as np

from uringinfer.container import AuxiliaryFile, Bank, Manifest, Segment, TensorPart
from uringinfer.kernels.formats import FORMATS

BF16, F32 = 2, 4


def part(name, format_name, shape, offset, *, rows=None):
    start, stop = rows or (0, shape[0])
    itemsize = BF16 if format_name == "bf16" else F32
    nbytes = (stop - start) * int(np.prod(shape[1:])) * itemsize
    return TensorPart(name, FORMATS[format_name], shape, start, stop, offset, nbytes)


def layout():
    """Segments as (name, group, streamed, nbytes, parts): a table, a layer in three segments, a head."""
    return [
        ("embed/0", "embed", False, 8192, (part("embed", "bf16", (100, 40), 0),)),
        (
            "layers.0/0",
            "layers.0",
            True,
            4096,
            (part("layers.0.norm", "f32", (40,), 0), part("layers.0.q", "bf16", (40, 40), 192)),
        ),
        ("layers.0/1", "layers.0", True, 8192, (part("layers.0.up", "bf16", (161, 40), 0, rows=(0, 81)),)),
        ("layers.0/2", "layers.0", True, 8192, (part("layers.0.up", "bf16", (161, 40), 0, rows=(81, 161)),)),
        ("head/0", "head", True, 8192, (part("lm_head", "bf16", (100, 40), 0),)),
    ]


def make_container(directory: Path, *, seed: int = 0, experts: int = 6) -> Manifest:
    """Writes the container into `directory` with seeded random bytes; returns its manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    trunk, segments = b"", []
    for name, group, streamed, nbytes, parts in layout():
        data = rng.bytes(nbytes)
        segments.append(Segment(name, group, len(trunk), nbytes, zlib.crc32(data), streamed, parts))
        trunk += data
    records = [rng.bytes(8192) for _ in range(experts)]
    expert_parts = (
        part("gate", "bf16", (20, 40), 0),
        part("up", "bf16", (20, 40), 1600),
        part("down", "bf16", (40, 20), 3200),
    )
    bank = Bank(1, "experts-L1.bin", experts, 8192, expert_parts, tuple(map(zlib.crc32, records)))
    text = b'{"a": 1}\n'
    rows = b"".join(zlib.crc32(trunk[at : at + 4096]).to_bytes(4, "little") for at in (0, 4096))
    manifest = Manifest(
        format_version=2,
        family="llama",
        config={"model_type": "llama", "rope_theta": 1e4, "name": "ä"},
        source={"kind": "safetensors"},
        trunk_file="trunk.bin",
        segments=tuple(segments),
        banks=(bank,),
        files=(
            AuxiliaryFile("tokenizer.json", len(text), zlib.crc32(text)),
            AuxiliaryFile("row_checksums.bin", len(rows), zlib.crc32(rows)),
        ),
    )
    (directory / "trunk.bin").write_bytes(trunk)
    (directory / "experts-L1.bin").write_bytes(b"".join(records))
    (directory / "tokenizer.json").write_bytes(text)
    (directory / "row_checksums.bin").write_bytes(rows)
    (directory / "manifest.json").write_text(manifest.to_json())
    return manifest


def signed(document) -> str:
    """The text of a manifest that says `document`, with the checksum that belongs to it."""
    document = {key: value for key, value in document.items() if key != "manifest_crc32"}
    text = json.dumps(document)[:-1] + ",\n"
    return text + f'"manifest_crc32": "{zlib.crc32(text.encode()):08x}"\n}}\n'
