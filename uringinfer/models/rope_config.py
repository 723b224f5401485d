"""From a config's rotary keys to `Rotary`: `rope_theta` and `rope_scaling` as most checkpoints write them, or
`rope_parameters` as transformers 5 does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from uringinfer.errors import UnsupportedModelError
from uringinfer.layers.rotary import (
    Rotary,
    default_frequencies,
    llama3_frequencies,
    yarn_frequencies,
    yarn_magnitude,
)
from uringinfer.models.config import ConfigReader


def read_scaling(
    reader: ConfigReader, default_theta: float = 10000.0, default_partial: float = 1.0
) -> ConfigReader:
    """The rotary keys of a config in one place, as a reader of their own: rope_theta, rope_type and the
    settings of that type. Its `finish` must be called once they are read.

    Raises UnsupportedModelError if the config gives different settings for different layers.
    """
    parameters = reader.table("rope_parameters")
    scaling = reader.table("rope_scaling")
    theta = reader.get("rope_theta") or default_theta
    partial = reader.number("partial_rotary_factor", default_partial)
    merged: dict[str, Any] = {"rope_theta": theta, "partial_rotary_factor": partial}
    for table in (scaling, parameters):
        if table is None:
            continue
        if any(isinstance(value, Mapping) for value in table.values()):
            raise UnsupportedModelError(
                f"{reader.family}: config gives each type of layer its own rotary settings",
                hint="this model needs one setting for all layers",
            )
        merged.update({key: value for key, value in table.items() if value is not None})
    merged["rope_type"] = merged.get("rope_type", merged.pop("type", "default"))
    merged.pop("type", None)
    return ConfigReader(f"{reader.family} rotary", merged)


def read_rotary(
    reader: ConfigReader,
    head_dim: int,
    max_context: int,
    *,
    default_theta: float = 10000.0,
    partial: bool = False,
    default_partial: float = 1.0,
    interleaved: bool = False,
) -> Rotary:
    """The rotary embedding of heads of `head_dim` channels.

    `partial` allows `partial_rotary_factor`; other families rotate whole heads. Raises UnsupportedModelError
    for scaling types besides default, linear, llama3 and yarn, and for settings that they do not have.
    """
    scaling = read_scaling(reader, default_theta, default_partial)
    theta = scaling.number("rope_theta", above=1.0)
    factor_of_head = scaling.number("partial_rotary_factor", 1.0)
    if factor_of_head > 1.0 or (factor_of_head != 1.0 and not partial):
        raise scaling.refuse("partial_rotary_factor", "whole heads to be rotated")
    dim = int(head_dim * factor_of_head)
    if dim % 2 or dim == 0:
        raise reader.refuse("head_dim", f"an even number of rotated channels, not {dim}")
    kinds = ("default", "linear", "llama3", "yarn")
    kind = scaling.choice("rope_type", {kind: kind for kind in kinds})
    frequencies = default_frequencies(theta, dim)
    scale = 1.0
    if kind == "linear":
        frequencies = frequencies / scaling.number("factor")
    elif kind == "llama3":
        low = scaling.number("low_freq_factor")
        frequencies = llama3_frequencies(
            frequencies,
            factor=scaling.number("factor"),
            low_freq_factor=low,
            high_freq_factor=scaling.number("high_freq_factor", above=low),
            original=scaling.integer("original_max_position_embeddings", max_context),
        )
    elif kind == "yarn":
        factor = scaling.number("factor")
        frequencies = yarn_frequencies(
            frequencies,
            theta=theta,
            dim=dim,
            factor=factor,
            beta_fast=scaling.number("beta_fast", 32.0),
            beta_slow=scaling.number("beta_slow", 1.0),
            original=scaling.integer("original_max_position_embeddings", max_context),
            truncate=scaling.flag("truncate", True),
        )
        scale = _yarn_scale(scaling, factor)
    scaling.finish()
    return Rotary(frequencies.astype(np.float32), scale, interleaved)


def _yarn_scale(scaling: ConfigReader, factor: float) -> float:
    """The factor of cosine and sine: given outright, by a pair of weights, or YaRN's own."""
    given = scaling.number("attention_factor", 0.0)
    over, under = scaling.number("mscale", 0.0), scaling.number("mscale_all_dim", 0.0)
    if given:
        return given
    if over and under:
        return yarn_magnitude(factor, over) / yarn_magnitude(factor, under)
    return yarn_magnitude(factor)
