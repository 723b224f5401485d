from dataclasses import replace

import pytest
from checkpoint_maker import make_checkpoint
from fake_model import FakeModel

from uringinfer.errors import IntegrityError, UnsupportedModelError
from uringinfer.models import model_from_config
from uringinfer.models.base import TensorGroup, TensorSpec
from uringinfer.packing.checkpoint import CheckpointSource
from uringinfer.packing.layout import make_layout


@pytest.fixture
def source(tmp_path):
    source = CheckpointSource.open(make_checkpoint(tmp_path / "m"))
    yield source
    source.close()


def spec(name, source_name, shape, **options):
    sources = (source_name,) if isinstance(source_name, str) else source_name
    return TensorSpec(name, shape, sources, **options)


UP = spec("up", "model.layers.0.mlp.up_proj.weight", (160, 64))
EMBED = spec("embed", "model.embed_tokens.weight", (500, 64), kind="embedding")
NORM = spec("norm", "model.norm.weight", (64,), kind="vector")


def names(layout):
    return [(s.name, s.streamed, [p.name for p in s.parts]) for s in layout.manifest.segments]


def test_the_real_model_is_laid_out_in_order_of_execution(source):
    layout = make_layout(model_from_config(source.config), source, "layer")
    assert [s.group for s in layout.manifest.segments] == ["embedding", "layers.0", "layers.1", "head"]
    assert [s.streamed for s in layout.manifest.segments] == [False, True, True, True]


def test_the_first_source_that_exists_is_taken(source):
    alternatives = spec("up", ("absent", "model.layers.0.mlp.up_proj.weight", "model.norm.weight"), (160, 64))
    layout = make_layout(FakeModel(TensorGroup("g", (alternatives,))), source)
    assert layout.blocks[0].runs()[0].tensor == "model.layers.0.mlp.up_proj.weight"


def test_a_missing_tensor_is_named_unless_it_is_optional(source):
    bias = spec("bias", "model.layers.0.mlp.up_proj.bias", (160,), kind="vector")
    with pytest.raises(IntegrityError, match=r"1 tensors that fake needs are missing: model\.layers\.0"):
        make_layout(FakeModel(TensorGroup("g", (UP, bias))), source)
    layout = make_layout(FakeModel(TensorGroup("g", (UP, replace(bias, optional=True)))), source)
    assert names(layout) == [("g/0", True, ["up"])]


def test_tensors_left_over_are_named_unless_they_may_be(source):
    model = FakeModel(TensorGroup("g", (UP,)), ignored=(r"model\.layers\..*", r"lm_head.*"))
    with pytest.raises(IntegrityError, match=r"2 tensors left over.*model\.embed_tokens\.weight, model"):
        make_layout(model, source)


def test_another_shape_than_the_configs_is_refused_with_both(source):
    model = FakeModel(TensorGroup("g", (replace(UP, shape=(64, 160)),)))
    with pytest.raises(IntegrityError, match=r"has the shape \[160, 64\], \[64, 160\] by config"):
        make_layout(model, source)


def test_a_vector_may_have_another_of_its_shapes_and_keeps_it(source):
    vector = spec("norm", "model.norm.weight", (32, 2), kind="vector", other_shapes=((1, 64), (64,)))
    (segment,) = make_layout(FakeModel(TensorGroup("g", (vector,))), source).manifest.segments
    assert segment.parts[0].shape == (64,)


def test_a_dtype_that_no_format_keeps_is_refused_by_name(source):
    name = "model.norm.weight"
    source.tensors[name] = replace(source.tensors[name], dtype="I64")
    with pytest.raises(UnsupportedModelError, match=r"model\.norm\.weight is of dtype I64"):
        make_layout(FakeModel(TensorGroup("g", (NORM,))), source)


def test_embedding_tables_lie_in_segments_of_their_own_that_no_pass_streams(source):
    layout = make_layout(FakeModel(TensorGroup("g", (NORM, EMBED, UP))), source)
    assert names(layout) == [("g/0", True, ["norm"]), ("g/1", False, ["embed"]), ("g/2", True, ["up"])]


def test_a_large_matrix_is_split_unless_it_must_stay_whole(source):
    split = make_layout(FakeModel(TensorGroup("g", (UP,))), source, 8192)
    whole = make_layout(FakeModel(TensorGroup("g", (replace(UP, whole=True),))), source, 8192)
    assert [(p.row_start, p.row_stop) for s in split.manifest.segments for p in s.parts] == [
        (0, 53),
        (53, 106),
        (106, 160),
    ]
    assert len(whole.manifest.segments) == 1


def test_segments_are_contiguous_and_aligned(source):
    layout = make_layout(model_from_config(source.config), source, 12_345)
    assert layout.segment_bytes == 12_288
    end = 0
    for block in layout.blocks:
        assert (block.offset, block.nbytes % 4096) == (end, 0)
        end += block.nbytes
    assert layout.nbytes == end
