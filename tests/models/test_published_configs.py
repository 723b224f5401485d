"""Configs as the published checkpoints spell them: accepted, and every parameter declared exactly once.

The number of parameters is what the model's publisher gives: to the last one, or rounded ("1.0e+12").
"""

import json
from math import prod
from pathlib import Path

import pytest

from uringinfer.models import model_from_config

PUBLISHED = json.loads((Path(__file__).parent / "published_configs.json").read_text())


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_declared_tensors_hold_the_number_of_parameters_that_the_model_is_known_to_have(name):
    model = model_from_config(PUBLISHED[name]["config"])
    trunk = sum(prod(spec.shape) for group in model.trunk() for spec in group.tensors)
    experts = sum(layer.count * prod(part.shape) for layer in model.expert_layers() for part in layer.parts)
    assert PUBLISHED[name]["parameters"] in (str(trunk + experts), f"{trunk + experts:.1e}")


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_no_two_tensors_share_a_name_or_a_source(name):
    model = model_from_config(PUBLISHED[name]["config"])
    specs = [spec for group in model.trunk() for spec in group.tensors]
    assert len({spec.name for spec in specs}) == len(specs)
    sources = [source for spec in specs for source in spec.sources]
    assert len(set(sources)) == len(sources)
