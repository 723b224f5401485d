import pytest
from container_maker import make_container

from uringinfer.container import Container


@pytest.fixture
def container(tmp_path):
    make_container(tmp_path / "m.uring")
    return Container.open(str(tmp_path / "m.uring"))


def test_tensors_come_in_order_of_execution_with_their_panels_in_order_of_rows(container):
    assert list(container.tensors) == ["embed", "layers.0.norm", "layers.0.q", "layers.0.up", "lm_head"]
    panels = container.tensors["layers.0.up"]
    assert [(p.part.row_start, p.part.row_stop, p.file_offset) for p in panels] == [
        (0, 81, 12288),
        (81, 161, 20480),
    ]


def test_a_pass_streams_everything_but_embedding_tables(container):
    assert [s.name for s in container.streamed_segments] == [
        "layers.0/0",
        "layers.0/1",
        "layers.0/2",
        "head/0",
    ]
    assert (container.streamed_bytes, container.table_bytes, container.bank_bytes) == (28672, 8192, 49152)


def test_a_bank_is_found_by_its_layer(container):
    assert [path.name for path in container.bank_paths(container.banks[1])] == ["experts-L1.bin"]
    assert 0 not in container.banks


def test_the_fingerprint_tells_packings_apart(container, tmp_path):
    make_container(tmp_path / "same.uring")
    make_container(tmp_path / "other.uring", seed=1)
    assert Container.open(tmp_path / "same.uring").fingerprint == container.fingerprint
    assert Container.open(tmp_path / "other.uring").fingerprint != container.fingerprint
