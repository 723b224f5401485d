"""The plan of the real Kimi K3, from a hollow checkpoint: what its sizes are known to give."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from kimi_k3_layout import text_config
from make_skeleton import write_skeleton

from uringinfer.container import Container
from uringinfer.container.manifest import AuxiliaryFile
from uringinfer.container.row_checksums import ROW_CHECKSUMS_NAME, row_checksum_bytes
from uringinfer.engine.opening import open_to_plan
from uringinfer.models import model_from_config
from uringinfer.packing.checkpoint import CheckpointSource
from uringinfer.packing.layout import make_layout

RECORD_BYTES = 17_547_264
KNOWN = {"laptop": 0, "desktop": 10, "workstation": 48, "server": 93}
"""Layers pinned with one segment a layer, of 93."""


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hollow") / "Kimi-K3"
    try:
        write_skeleton(directory, text_config())
    except OSError as error:
        pytest.skip(f"no hollow files of a terabyte here: {error}")
    return directory


@pytest.fixture(scope="module")
def opened(skeleton):
    """The index of half a million tensors takes seconds: it is built once."""
    return open_to_plan(skeleton, "layer")


@pytest.mark.slow
def test_presets_pin_the_layers_that_they_are_known_to(skeleton, opened, monkeypatch, command_line):
    monkeypatch.setattr("uringinfer.api.open_to_plan", lambda path, segment: opened)
    for preset, layers in KNOWN.items():
        result = command_line("plan", skeleton, "--preset", preset, "--segment", "layer", "--json")
        report = json.loads(result.stdout)
        found = {(choice["segment"], choice["placement"]): choice for choice in report["choices"]}
        assert (found["layer", "prefix"]["pinned_layers"], report["layers"]) == (layers, 93)
        assert (found["layer", "prefix"]["ring_slots"] != 1) == (preset != "laptop")
        assert found["auto", "spread"]["hit_rate"] > found["layer", "spread"]["hit_rate"]
        assert found["auto", "spread"]["ring_slots"] == 2


@pytest.mark.slow
def test_the_table_shows_the_known_numbers_and_those_of_finer_segments(
    skeleton, opened, monkeypatch, command_line
):
    monkeypatch.setattr("uringinfer.api.open_to_plan", lambda path, segment: opened)
    result = command_line("plan", skeleton, "--preset", "desktop", "--segment", "layer")
    table = [line.split() for line in result.stdout.splitlines()[-4:]]
    assert table[1][:7] == ["layer", "prefix", "10", "of", "93,", "10.8%", "11.6%"]
    assert [row[:2] for row in table[2:]] == [["auto", "spread"], ["auto", "prefix"]]


@pytest.mark.slow
def test_the_manifest_of_the_whole_model_opens_and_describes_every_expert(skeleton):
    source = CheckpointSource.open(skeleton)
    layout = make_layout(model_from_config(source.config), source)
    source.close()
    assert len(source.tensors) == 497_220
    assert {bank.record_bytes for bank in layout.manifest.banks} == {RECORD_BYTES}
    assert sum(bank.num_experts for bank in layout.manifest.banks) == 92 * 896
    container = skeleton.with_suffix(".uring")
    container.mkdir()
    checksums = AuxiliaryFile(ROW_CHECKSUMS_NAME, row_checksum_bytes(layout.manifest.segments), 0)
    ends = {checksums.name: checksums.nbytes}
    for block in layout.blocks:
        ends[block.file] = block.offset + block.nbytes
    for name, nbytes in ends.items():
        with (container / name).open("wb") as file:
            file.truncate(nbytes)
    manifest = replace(layout.manifest, files=(checksums,))
    (container / "manifest.json").write_text(manifest.to_json())
    assert Container.open(container).bank_bytes == 1_446_456_066_048
