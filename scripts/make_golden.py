#!/usr/bin/env python
"""Makes the golden logits under tests/models/golden with transformers, an implementation that shares no code
with this package.

usage: make_golden.py [CASE ...]     (no CASE: all of them)

Each case becomes CASE.npz: `config` and `shapes` (JSON), `seed`, `ids` [T], `logits` [T, vocab] float32,
`routing` [layers with experts, T, K], each token's experts in ascending order, `greedy` [16] and `margin`
[16], the distance between the two best logits at each greedy step. The weights are not stored:
tests/models/tiny_checkpoint.py makes them again from seed, names and shapes.
"""

import json
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.utils import logging

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "models")]
from golden_cases import CASES  # noqa: E402
from tiny_checkpoint import checkpoint  # noqa: E402
from tiny_quantised import quantised  # noqa: E402

GOLDEN = ROOT / "tests" / "models" / "golden"
GREEDY = 16


def saved_shapes(config, directory):
    """Names and shapes of the tensors that a checkpoint of this config holds, as transformers saves it."""
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(directory)
    with safe_open(directory / "model.safetensors", "pt") as file:
        return {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def published(name, names):
    """A tensor's name in published checkpoints."""
    for pattern, replacement in names.items():
        name = re.sub(pattern, replacement, name)
    return name


def dequantised(arrays):
    """Quantised weights as transformers and torch decode them, in float32; the others in bf16."""
    tensors = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(array)
        if name.endswith("_blocks"):
            scales = torch.from_numpy(arrays[name.removesuffix("_blocks") + "_scales"])
            decoded = convert_moe_packed_tensors(tensor, scales, dtype=torch.float32)
            tensors[name.removesuffix("_blocks")] = decoded.contiguous()
        elif f"{name}_scale_inv" in arrays:
            scales = torch.from_numpy(arrays[f"{name}_scale_inv"])
            block = len(tensor) // len(scales)
            factors = scales.repeat_interleave(block, 0).repeat_interleave(block, 1)
            tensors[name] = tensor.view(torch.float8_e4m3fn).float() * factors
        elif not name.endswith(("_scales", "_scale_inv")):
            tensors[name] = tensor.to(torch.bfloat16)
    return tensors


def oracle(case, directory):
    """(config as saved, shapes, model in float32 with the tiny checkpoint's weights)."""
    model_type, names, seed = case["model_type"], case["names"], case["seed"]
    quantization = {"quantization_config": case["quantization"]} if case["quantization"] else {}
    config = AutoConfig.for_model(model_type, **case["config"])
    shapes = {published(name, names): shape for name, shape in saved_shapes(config, directory).items()}
    arrays = quantised(checkpoint(seed, shapes, config.tie_word_embeddings), case["quantization"])
    save_file(dequantised(arrays), directory / "model.safetensors", {"format": "pt"})
    model, report = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if report["missing_keys"] or report["unexpected_keys"]:
        raise RuntimeError(f"{model_type}: the checkpoint does not load: {report}")
    saved = json.loads((directory / "config.json").read_text())
    return saved | quantization, shapes, model.eval()


@contextmanager
def recorded_routing(model):
    """A list that collects, layer by layer, the experts [T, K] that each router chooses."""
    routers = [module for module in model.modules() if type(module).__name__.lower().endswith("topkrouter")]
    chosen = []
    hooks = [
        router.register_forward_hook(lambda module, inputs, output: chosen.append(output[2].numpy()))
        for router in routers
    ]
    yield chosen
    for hook in hooks:
        hook.remove()


@torch.no_grad()
def references(model, seed, tokens, greedy=GREEDY):
    """ids, logits, greedy continuation and its margins, all without a cache: the plain definition."""
    ids = np.random.default_rng(seed).integers(0, model.config.vocab_size, tokens)
    sequence = torch.from_numpy(ids)[None]
    with recorded_routing(model) as routing:
        logits = model(input_ids=sequence, use_cache=False).logits[0]
    chosen, margin = [], []
    for _ in range(greedy):
        best = model(input_ids=sequence, use_cache=False).logits[0, -1].topk(2)
        chosen.append(int(best.indices[0]))
        margin.append(float(best.values[0] - best.values[1]))
        sequence = torch.cat([sequence, best.indices[None, :1]], 1)
    return {
        "ids": ids,
        "logits": logits.numpy(),
        "routing": np.sort(np.array(routing, np.int16)),
        "greedy": np.array(chosen),
        "margin": np.array(margin, np.float32),
    }


def golden(case):
    """Everything the golden file of a case holds."""
    with tempfile.TemporaryDirectory() as directory:
        config, shapes, model = oracle(case, Path(directory))
        arrays = references(model, case["seed"], case["tokens"])
    config |= case["renamed"]
    return arrays | {
        "config": json.dumps(config),
        "shapes": json.dumps(shapes),
        "seed": np.array(case["seed"]),
    }


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    GOLDEN.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        arrays = golden(CASES[name])
        np.savez_compressed(GOLDEN / f"{name}.npz", **arrays)
        size = (GOLDEN / f"{name}.npz").stat().st_size
        print(f"{name:24} {size:6} bytes, smallest margin {arrays['margin'].min():.3f}")


if __name__ == "__main__":
    main()
