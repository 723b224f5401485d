"""A container that was damaged anywhere, by anything, never gives another answer without a word.

Each file of a container is damaged at random places: a bit, a sector of zeros, two blocks in each other's
place, an end cut off. With default options a run then gives the undamaged container's logits to the bit (the
damage lies where nothing is read, or in padding) or ends with a typed error of one line.
"""

import random
import shutil

import numpy as np
import pytest

from tests.engine.tiny_models import pack_moe, write_tiny_checkpoint
from uringinfer.engine.generation import GenerationOptions, Listener
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.errors import UringinferError
from uringinfer.packing.packer import pack

IDS = [5, 17, 250, 3, 99]
DAMAGES = 2
"""Of each kind, for each file."""


def flip_a_bit(data, draw):
    place = draw.randrange(len(data))
    data[place] ^= 1 << draw.randrange(8)


def zero_a_sector(data, draw):
    start = draw.randrange(len(data)) // 512 * 512
    data[start : start + 512] = bytes(len(data[start : start + 512]))


def swap_two_blocks(data, draw):
    blocks = len(data) // 4096
    if blocks < 2:
        flip_a_bit(data, draw)
        return
    one, other = (4096 * block for block in draw.sample(range(blocks), 2))
    data[one : one + 4096], data[other : other + 4096] = data[other : other + 4096], data[one : one + 4096]


def cut_the_end_off(data, draw):
    del data[draw.randrange(len(data)) :]


def dense(directory, *, tied):
    checkpoint = write_tiny_checkpoint(directory / "checkpoint", tied=tied)
    pack(checkpoint, directory / "m.uring", segment=16384)
    return directory / "m.uring"


@pytest.fixture(scope="module", params=["dense", "tied", "mixture"])
def container(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    return (
        pack_moe(directory) if request.param == "mixture" else dense(directory, tied=request.param == "tied")
    )


def answer(path):
    """The logits of some tokens, through a ring and a cache that hold a part of the model."""
    opened = open_model(path)
    sizes = [segment.nbytes for segment in opened.container.streamed_segments]
    records = [bank.record_bytes for bank in opened.container.banks.values()]
    options = LoadOptions(
        context=64,
        trunk_budget=sum(sizes) // 2 + 2 * max(sizes),
        cache_budget=20 * max(records) if records else None,
    )
    logits = []
    with opened.load(options) as engine:
        engine.generate(IDS, GenerationOptions(max_tokens=3), Listener(logits=logits.append))
    return np.concatenate(logits)


@pytest.fixture(scope="module")
def right(container):
    return answer(container)


@pytest.mark.parametrize("damage", [flip_a_bit, zero_a_sector, swap_two_blocks, cut_the_end_off])
def test_damage_of_any_file_gives_the_right_answer_or_an_error(container, right, tmp_path, damage):
    copy = tmp_path / "m.uring"
    shutil.copytree(container, copy)
    draw = random.Random(f"{container.name} {damage.__name__}")
    told = 0
    for path in sorted(copy.iterdir()):
        whole = path.read_bytes()
        for _ in range(DAMAGES):
            data = bytearray(whole)
            damage(data, draw)
            path.write_bytes(data)
            try:
                assert np.array_equal(answer(copy), right), f"{path.name} was damaged and nothing was said"
            except UringinferError as error:
                assert "\n" not in error.message
                told += data != whole
        path.write_bytes(whole)
    assert told > DAMAGES
