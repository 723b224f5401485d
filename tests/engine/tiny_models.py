"""Tiny models: a llama with a tokenizer and a chat template, a mixture of experts; and containers of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parents[1] / "text")]
from make_synthetic import llama_config, llama_tensors, write_checkpoint
from synthetic_moe import moe_config, moe_tensors
from tokenizer_files import byte_level

from uringinfer.packing.packer import pack

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY = {"layers": 3, "hidden": 128, "intermediate": 320, "heads": 4, "kv_heads": 2, "vocab": 600}
MOE = {
    "layers": 4,
    "hidden": 64,
    "inner": 48,
    "experts": 16,
    "per_token": 3,
    "heads": 4,
    "kv_heads": 2,
    "vocab": 300,
}
END = "<|im_end|>"


def write_tiny_checkpoint(
    directory: Path, *, tokenizer: bool = True, seed: int = 3, **changes: object
) -> Path:
    """A llama of random bf16 weights; `changes` go to `llama_config`."""
    config = llama_config(**(TINY | changes))
    write_checkpoint(directory, config, llama_tensors(config), seed=seed)
    if tokenizer:
        (directory / "tokenizer.json").write_text(json.dumps(byte_level()))
        settings = {"eos_token": END, "chat_template": CHAT_TEMPLATE}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    return directory


def pack_moe(directory: Path) -> Path:
    """The container of a mixture of experts with random bf16 weights."""
    config = moe_config(**MOE)
    write_checkpoint(directory / "checkpoint", config, moe_tensors(config), seed=5)
    pack(directory / "checkpoint", directory / "moe.uring", segment=16384)
    return directory / "moe.uring"


class Containers:
    """Packs one checkpoint with any segment size, each once."""

    def __init__(self, checkpoint: Path, directory: Path) -> None:
        self.checkpoint = checkpoint
        self._directory = directory

    def __call__(self, segment: int | str = 32768) -> Path:
        path = self._directory / f"{segment}.uring"
        if not path.exists():
            pack(self.checkpoint, path, segment=segment)
        return path
