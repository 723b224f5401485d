"""Perplexity of a real model from quantised GGUF files is that of the same weights in float32."""

import os
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

sys.path.append(str(Path(__file__).parents[1] / "packing"))
import k_quants

from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.packing.packer import pack
from uringinfer.perplexity import measure_perplexity

pytestmark = pytest.mark.slow

SHARED = Path(os.environ.get("URINGINFER_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "ppl.txt"
TEXT = SHARED if SHARED.exists() else Path(__file__).parents[1] / "data" / "jargon.txt"
CONTEXT, WINDOWS = 512, 4
FALLBACK = {Kind.Q4_K: Kind.Q5_0, Kind.Q6_K: Kind.Q8_0}
"""What llama.cpp's quantiser takes for rows that are no multiple of a super-block."""


def kind_of(mix, name):
    """The type of a matrix in a file of this mix, as llama.cpp's quantiser chooses it."""
    if mix == "Q8_0":
        return Kind.Q8_0
    if mix == "Q6_K" or "token_embd" in name:
        return Kind.Q6_K
    layer = int(name.split(".")[1])
    more = layer < 30 // 8 or layer >= 7 * 30 // 8 or (layer - 30 // 8) % 3 == 2
    return Kind.Q6_K if more and ("attn_v" in name or "ffn_down" in name) else Kind.Q4_K


def quantised(mix, name, values):
    """(rows as bytes, their type) of a matrix in float32."""
    kind = kind_of(mix, name)
    if values.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        kind = FALLBACK[kind]
    if kind not in FALLBACK:
        return quantize(values, kind), kind
    return k_quants.quantise(values.reshape(-1), kind).reshape(len(values), -1), kind


def write_both(source, mix, quantised_path, floats_path):
    """Writes SmolLM2 in this mix of types, and what that is worth in float32."""
    reader = gguf.GGUFReader(source)
    writers = [gguf.GGUFWriter(path, "llama") for path in (quantised_path, floats_path)]
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "general.")):
            continue
        for writer in writers:
            kind = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=kind)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        data, kind = (values, Kind.F32) if values.ndim == 1 else quantised(mix, tensor.name, values)
        writers[0].add_tensor(tensor.name, data, raw_dtype=kind)
        writers[1].add_tensor(tensor.name, values if kind == Kind.F32 else dequantize(data, kind))
    for writer in writers:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def perplexity(container):
    opened = open_model(container)
    with opened.load(LoadOptions(context=CONTEXT, chunk=128, all_logits=True)) as engine:
        ids = engine.encode(TEXT.read_text(encoding="utf-8")[:40_000])
        *_, last = measure_perplexity(engine, ids, context=CONTEXT, max_windows=WINDOWS)
        return last.perplexity


@pytest.mark.parametrize("mix", ["Q4_K_M", "Q6_K", "Q8_0"])
def test_a_quantised_file_predicts_as_its_weights_in_float32_do(tmp_path, mix):
    source = os.environ.get("URINGINFER_SMOLLM2")
    if source is None:
        pytest.skip("needs URINGINFER_SMOLLM2, the path of the GGUF file; scripts/test.sh --all sets it")
    write_both(source, mix, tmp_path / "packed.gguf", tmp_path / "floats.gguf")
    results = []
    for name in ("packed", "floats"):
        pack(tmp_path / f"{name}.gguf", tmp_path / f"{name}.uring")
        results.append(perplexity(tmp_path / f"{name}.uring"))
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    assert np.isfinite(results[1])
