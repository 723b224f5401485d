"""A real model against an independent oracle: transformers in float32 on the same quantised weights.

SmolLM2-135M-Instruct is a GGUF file; scripts/test.sh --all fetches it and sets URINGINFER_SMOLLM2. The oracle
gets its weights from the package gguf's own decoder and undoes llama.cpp's order of query and key rows.
"""

import os
from pathlib import Path

import gguf
import numpy as np
import pytest

from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model

pytestmark = pytest.mark.slow

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about a river.",
    "Explain to a child why the sky is blue.",
)
NEW_TOKENS = 64


GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def gguf_file():
    path = os.environ.get("URINGINFER_SMOLLM2")
    if path is None:
        pytest.skip("needs URINGINFER_SMOLLM2, the path of the GGUF file; scripts/test.sh --all sets it")
    return Path(path)


@pytest.fixture(scope="module")
def oracle(gguf_file):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    reader = gguf.GGUFReader(gguf_file)

    def field(name):
        return reader.get_field(f"llama.{name}").contents()

    heads, groups = field("attention.head_count"), field("attention.head_count_kv")
    config = transformers.LlamaConfig(
        vocab_size=field("vocab_size"),
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_theta=field("rope.freq_base"),
        max_position_embeddings=field("context_length"),
        tie_word_embeddings=True,
    )
    state = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        name = tensor.name.removesuffix(".weight")
        if name == "token_embd":
            state["model.embed_tokens.weight"] = state["lm_head.weight"] = values
        elif name == "output_norm":
            state["model.norm.weight"] = values
        else:
            _, layer, part = name.split(".")
            if part in ("attn_q", "attn_k"):
                count = heads if part == "attn_q" else groups
                pairs = values.reshape(count, values.shape[0] // count // 2, 2, values.shape[1])
                values = pairs.swapaxes(1, 2).reshape(values.shape)
            state[f"model.layers.{layer}.{GGUF_NAMES[part]}.weight"] = values
    model = transformers.LlamaForCausalLM(config).float()
    model.load_state_dict(state)
    return model.eval()


@pytest.fixture(scope="module")
def engine(gguf_file, tmp_path_factory):
    opened = open_model(gguf_file, pack_dir=tmp_path_factory.mktemp("smollm2"))
    with opened.load(LoadOptions(trunk_budget=128 << 20, context=512, all_logits=True)) as engine:
        yield engine


def oracle_logits(oracle, ids):
    import torch

    with torch.no_grad():
        return oracle(torch.tensor([ids])).logits[0].numpy()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_and_greedy_tokens_are_those_of_the_oracle(engine, oracle, prompt):
    ids = engine.encode(prompt)
    generation = engine.generate(ids, GenerationOptions(max_tokens=NEW_TOKENS, ignore_eos=True))
    every = [*ids, *generation.tokens]

    expected = oracle_logits(oracle, every)
    got = engine.session().feed(every, all_logits=True)

    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()
    assert generation.tokens == expected[len(ids) - 1 : -1].argmax(axis=1).tolist()


def test_the_answer_makes_sense(engine):
    generation = engine.generate(PROMPTS[0], GenerationOptions(max_tokens=48))
    assert "Paris" in generation.text
    assert generation.finish_reason == "stop"
