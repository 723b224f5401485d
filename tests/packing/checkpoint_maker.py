"""Small checkpoints for tests of packing, and their tensors as the safetensors library reads them."""

import json
import struct
import sys
from pathlib import Path

import safetensors

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from make_synthetic import llama_config, llama_tensors, write_checkpoint

SMALL = {"layers": 2, "hidden": 64, "intermediate": 160, "heads": 4, "kv_heads": 2, "vocab": 500}


def make_checkpoint(directory, *, shard_bytes=100_000, seed=0, **dimensions):
    """A llama checkpoint in a few shards, with a tokenizer file beside it."""
    config = llama_config(**SMALL | dimensions)
    write_checkpoint(directory, config, llama_tensors(config), shard_bytes=shard_bytes, seed=seed)
    (directory / "tokenizer.json").write_text('{"model": {}}\n')
    return directory


def write_shard(path, header, data=b"", *, length=None):
    """A safetensors file by hand: `header` is text or becomes JSON, `length` may lie about it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def raw_tensors(directory):
    """Name -> bytes of every tensor, by the safetensors library."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors |= {name: bytes(entry["data"]) for name, entry in safetensors.deserialize(path.read_bytes())}
    return tensors


def edit_json(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def write_tensors(directory, tensors):
    """A checkpoint of one shard: name -> (dtype, array whose bytes are the tensor's, shape)."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text("{}")
    header, data = {}, b""
    for name, (dtype, array, shape) in tensors.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    write_shard(directory / "model.safetensors", header, data)
    return directory
