"""Tiny models that speak a chat format: what they answer is put into their mouths by a mask."""

import json
import sys
from pathlib import Path

sys.path += [
    str(Path(__file__).parents[up] / name) for up, name in ((2, "scripts"), (1, "text"), (1, "models"))
]
import kimi_k3_cases
import tokenizer_files
from kimi_k3_layout import text_config
from make_kimi_k3 import write_checkpoint as write_kimi_k3
from make_synthetic import llama_config, llama_tensors, write_checkpoint
from tiny_models import TINY

from uringinfer.packing.packer import pack


def write_talking(directory, template, *, kind="attention", endless=False):
    """A container of a tiny model of random weights with a tokenizer and `template`; `kind` says what its
    state is; `endless` that no token ends a reply."""
    checkpoint = directory / "checkpoint"
    if kind == "recurrent":
        config = text_config(**kimi_k3_cases.shape(vocab_size=600), mxfp4=False)
        write_kimi_k3(checkpoint, config, seed=1)
    else:
        config = llama_config(**TINY)
        if kind == "window":
            config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 6}
        write_checkpoint(checkpoint, config, llama_tensors(config), seed=3)
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer_files.with_chat_markup()))
    settings = {"chat_template": template} | ({} if endless else {"eos_token": "<|im_end|>"})
    (checkpoint / "generation_config.json").write_text(json.dumps({"eos_token_id": 5000 if endless else 2}))
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    pack(checkpoint, directory / "m.uring")
    return directory / "m.uring"


def saying(ids):
    """A mask that lets a model say just these tokens."""
    return lambda so_far: [ids[len(so_far)]]
