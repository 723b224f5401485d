"""A config.json is hostile input: whatever stands in it, the answer is a model or a typed error."""

import json
import warnings

from golden_cases import CASES
from golden_files import arrays_of, load
from hypothesis import given, settings
from hypothesis import strategies as st

from uringinfer.errors import UringinferError
from uringinfer.models import model_from_config

CONFIGS = [json.loads(str(arrays_of(name)["config"])) for name in CASES]
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-2, 9),
    st.floats(),
    st.sampled_from([1.0, 1e-320, 1e308, 0.5]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["rope_type", "type", "factor", "rope_theta", "x"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)
ROTARY_KEYS = (
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "partial_rotary_factor",
)
ROTARY = st.fixed_dictionaries(
    {"rope_type": st.sampled_from(["default", "linear", "llama3", "yarn", "dynamic"])},
    optional=dict.fromkeys(ROTARY_KEYS, NUMBERS),
)


@st.composite
def mutated_configs(draw):
    """A golden config with one to three keys changed, removed or made up."""
    config = dict(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from([*sorted(config), "made_up"]))
        if draw(st.integers(0, 5)) == 0:
            config.pop(key, None)
        else:
            config[key] = draw(ROTARY if key == "rope_parameters" else VALUES)
    return config


def answers_or_refuses(config):
    """Builds the model with warnings as errors; only a typed error of one line may come of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = model_from_config(config)
            model.trunk()
            model.scratch_bytes(4, 16)
        except UringinferError as error:
            assert "\n" not in str(error)


@settings(max_examples=100)
@given(config=mutated_configs())
def test_any_config_gives_a_model_or_a_typed_error(config):
    answers_or_refuses(config)


@settings(max_examples=100)
@given(name=st.sampled_from(["qwen3", "glm4_moe", "deepseek_v3"]), rotary=ROTARY)
def test_any_rotary_settings_give_a_model_or_a_typed_error(name, rotary):
    answers_or_refuses({**load(name).config, "rope_parameters": rotary})
