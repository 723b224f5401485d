"""A tiny llama checkpoint with a tokenizer and a chat template, and containers packed from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parents[1] / "text")]
from make_synthetic import llama_config, llama_tensors, write_checkpoint
from tokenizer_files import byte_level

from uringinfer.packing.packer import pack

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY = {"layers": 3, "hidden": 128, "intermediate": 320, "heads": 4, "kv_heads": 2, "vocab": 600}
END = "<|im_end|>"


def write_tiny_checkpoint(directory: Path, *, tokenizer: bool = True, **changes: object) -> Path:
    """A llama of random bf16 weights; `changes` go to `llama_config`."""
    config = llama_config(**(TINY | changes))
    write_checkpoint(directory, config, llama_tensors(config), seed=3)
    if tokenizer:
        (directory / "tokenizer.json").write_text(json.dumps(byte_level()))
        settings = {"eos_token": END, "chat_template": CHAT_TEMPLATE}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    return directory


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
