"""A container is opened only if it holds what its config says."""

from dataclasses import replace

import pytest

from tests.engine.tiny_models import pack_moe
from uringinfer.container.container import Container
from uringinfer.models import model_from_config
from uringinfer.models.container_fit import unfit


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return Container.open(pack_moe(tmp_path_factory.mktemp("fit"))).manifest


def faults(manifest):
    return list(unfit(model_from_config(manifest.config), manifest))


def with_part(manifest, part_name, **changes):
    """The manifest with every panel of the tensor `part_name` changed."""
    segments = [
        replace(
            segment,
            parts=tuple(
                replace(part, **changes) if part.name == part_name else part for part in segment.parts
            ),
        )
        for segment in manifest.segments
    ]
    return replace(manifest, segments=tuple(segments))


def without_part(manifest, name):
    segments = [
        replace(segment, parts=tuple(part for part in segment.parts if part.name != name))
        for segment in manifest.segments
    ]
    return replace(manifest, segments=tuple(segments))


def with_bank(manifest, **changes):
    return replace(manifest, banks=(replace(manifest.banks[0], **changes), *manifest.banks[1:]))


def with_first_segment(manifest, **changes):
    return replace(manifest, segments=(replace(manifest.segments[0], **changes), *manifest.segments[1:]))


def test_what_pack_makes_fits(manifest):
    assert faults(manifest) == []


Q = "layers.1.self_attn.q_proj"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda m: without_part(m, Q), f"tensor {Q} is missing"),
        (
            lambda m: with_part(m, Q, shape=(32, 128)),
            f"tensor {Q} has the shape [32, 128], [64, 64] by config",
        ),
        (lambda m: with_part(m, Q, name="layers.1.q"), "tensor layers.1.q is none of qwen3_moe"),
        (lambda m: replace(m, segments=m.segments[::-1]), "tensor lm_head comes where embed_tokens belongs"),
        (lambda m: with_first_segment(m, streamed=True), "tensor embed_tokens is streamed"),
        (
            lambda m: with_first_segment(m, group="head"),
            "tensor embed_tokens lies in head, and belongs to embedding",
        ),
        (lambda m: replace(m, banks=m.banks[1:]), "the experts of layer 0 are missing"),
        (lambda m: with_bank(m, layer=9), "layer 9 has no experts by config"),
        (lambda m: with_bank(m, num_experts=15), "layer 0 has 15 experts, 16 by config"),
        (lambda m: with_bank(m, parts=m.banks[0].parts[:2]), "layer 0: expert tensor down is missing"),
        (
            lambda m: with_bank(
                m, parts=(replace(m.banks[0].parts[0], shape=(64, 48)), *m.banks[0].parts[1:])
            ),
            "layer 0: expert tensor gate has the shape [64, 48], [48, 64] by config",
        ),
    ],
)
def test_what_does_not_fit_is_named(manifest, change, fault):
    assert fault in faults(change(manifest))
