import pytest
from container_maker import make_container

from uringinfer.container import Container
from uringinfer.container.summary import groups, summarise, tensors


@pytest.fixture
def container(tmp_path):
    make_container(tmp_path / "m.uring")
    return Container.open(tmp_path / "m.uring")


def test_a_token_reads_the_streamed_trunk_and_its_experts(container):
    assert summarise(container).bytes_per_token == 28672
    assert summarise(container, experts_per_token=2).bytes_per_token == 28672 + 2 * 8192


def test_formats_and_parameters_count_every_expert(container):
    summary = summarise(container)
    experts = 6 * 3 * 20 * 40
    trunk = 100 * 40 + 40 + 40 * 40 + 161 * 40 + 100 * 40
    assert summary.parameters == trunk + experts
    assert summary.formats == {"bf16": 2 * (trunk - 40 + experts), "f32": 160}
    assert (summary.experts, summary.banks, summary.largest_record_bytes) == (6, 1, 8192)


def test_groups_come_in_order_of_execution(container):
    assert [(g.name, g.segments, g.tensors, g.nbytes, g.streamed) for g in groups(container)] == [
        ("embed", 1, 1, 8192, False),
        ("layers.0", 3, 3, 20480, True),
        ("head", 1, 1, 8192, True),
    ]


def test_tensors_are_listed_with_their_panels_and_experts_once_for_a_layer(container):
    listed = {tensor.name: tensor for tensor in tensors(container)}
    assert (listed["layers.0.up"].panels, listed["layers.0.up"].nbytes) == (2, 161 * 40 * 2)
    assert listed["layers.1.experts.*.gate"].where == "6 records of experts-L1.bin"
