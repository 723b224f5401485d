import os
import shutil

import pytest
from tiny_models import write_tiny_checkpoint

from uringinfer.engine.generation import GenerationOptions
from uringinfer.engine.loading import LoadOptions
from uringinfer.engine.opening import open_model
from uringinfer.engine.prompt import Prompter
from uringinfer.errors import BudgetError, IntegrityError, UsageError

ONE_TOKEN = GenerationOptions(max_tokens=2, ignore_eos=True)


def test_the_floor_of_the_budget_is_named_when_it_is_not_reached(tiny):
    with pytest.raises(BudgetError) as caught:
        tiny.load(LoadOptions(budget=1 << 20))
    assert caught.value.budget == 1 << 20 < caught.value.floor
    assert str(caught.value.floor) in str(caught.value)


def test_more_budget_pins_more_until_nothing_streams(medium, steady_memory):
    pinned = []
    for share in (0.1, 0.5, 1.1):
        plan = medium.plan(LoadOptions(budget=1 << 40))
        budget = plan.floor + round(share * (plan.everything - plan.floor))
        with medium.load(LoadOptions(budget=budget)) as engine:
            pinned.append(engine.setup.pinned_bytes)
    total = sum(segment.nbytes for segment in medium.container.streamed_segments)
    assert 0 < pinned[0] < pinned[1] < pinned[2] == total


def test_the_default_budget_needs_no_number(tiny):
    with tiny.load() as engine:
        assert engine.setup.budget > 0
        assert engine.setup.context == 4096
        assert engine.setup.hit_rate == 1.0


def test_setup_says_what_reads_and_how(tiny):
    trunk_budget = max(segment.nbytes for segment in tiny.container.streamed_segments)
    with tiny.load(LoadOptions(io="preadv", trunk_budget=trunk_budget)) as engine:
        assert engine.setup.reader == "preadv"
        assert not engine.setup.overlaps
        assert "reads do not overlap compute" in engine.setup.to_text()
        assert engine.setup.huge_bytes <= engine.setup.arena_bytes


def test_what_was_asked_for_and_not_obtained_is_noted(packed, monkeypatch):
    monkeypatch.setenv("URINGINFER_NATIVE", "0")
    with open_model(packed()).load(LoadOptions(io="auto")) as engine:
        assert engine.setup.reader == "preadv"
        assert any("io_uring cannot be used" in note for note in engine.notes)
        assert any("native kernels" in note for note in engine.notes)
        assert engine.generate([1, 2], ONE_TOKEN).notes == engine.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 0}, "a context of 0 tokens"),
        ({"context": 9000}, "at most 8192"),
        ({"chunk": 0}, "a chunk of 0 tokens"),
        ({"parallel": 0}, "a batch of 0 conversations"),
        ({"ring_slots": 0}, "0 ring slots"),
    ],
)
def test_options_that_cannot_be_are_named(tiny, options, message):
    with pytest.raises(UsageError, match=message):
        tiny.load(LoadOptions(budget=1 << 40, **options))


def test_loading_shows_its_progress_in_bytes(tiny):
    steps = []
    with tiny.load(progress=lambda *step: steps.append(step)) as engine:
        total = engine.plan.trunk.pinned_bytes + engine.plan.embedding_bytes
    assert steps[-1] == ("loading", total, total)
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)


def damaged(container, directory, segment_number):
    """A copy of the container with one bit of this segment flipped."""
    copy = directory / "damaged.uring"
    shutil.copytree(container.path, copy)
    opened = open_model(copy)
    segment = opened.container.segments[segment_number]
    with (copy / opened.container.manifest.trunk_file).open("r+b") as file:
        file.seek(segment.offset + 5)
        byte = file.read(1)[0]
        file.seek(segment.offset + 5)
        file.write(bytes([byte ^ 1]))
        os.fsync(file.fileno())
    return open_model(copy), segment


@pytest.mark.parametrize("pinned", [True, False])
def test_verified_reads_name_the_damaged_segment(tiny, tmp_path, pinned):
    opened, segment = damaged(tiny.container, tmp_path, -1)
    sizes = [entry.nbytes for entry in opened.container.streamed_segments]
    trunk_budget = sum(sizes) if pinned else 2 * max(sizes)
    options = LoadOptions(trunk_budget=trunk_budget, placement="prefix")
    with pytest.raises(IntegrityError, match=f"segment '{segment.name}' of the trunk: checksum mismatch"):
        opened.load(options).generate([1, 2], ONE_TOKEN)


def test_verified_reads_of_an_undamaged_container_pass(tiny):
    sizes = [entry.nbytes for entry in tiny.container.streamed_segments]
    options = LoadOptions(trunk_budget=sum(sizes) // 2)
    with tiny.load(options) as engine:
        assert len(engine.generate([1, 2], ONE_TOKEN).tokens) == 2


def test_a_model_without_tokenizer_takes_ids_and_says_what_it_lacks(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "bare", layers=1, tokenizer=False)
    opened = open_model(checkpoint, pack_dir=tmp_path)
    with opened.load() as engine:
        assert any("has no tokenizer" in note for note in engine.notes)
        generation = engine.generate([1, 2], ONE_TOKEN)
        assert (len(generation.tokens), generation.text) == (2, "")
        with pytest.raises(UsageError, match="has no tokenizer, so text cannot be used"):
            engine.generate("hello", ONE_TOKEN)


def test_a_missing_chat_template_is_told_once_and_only_where_text_needs_one(tmp_path):
    checkpoint = write_tiny_checkpoint(tmp_path / "plain", layers=1)
    (checkpoint / "tokenizer_config.json").write_text("{}")
    opened = open_model(checkpoint, pack_dir=tmp_path)
    with opened.load() as engine:
        engine.generate("hello", ONE_TOKEN, raw=True)
        assert not any("chat template" in note for note in engine.generate([1, 2], ONE_TOKEN).notes)
        for _ in range(2):
            notes = engine.generate("hello", ONE_TOKEN).notes
            assert sum("no chat template: prompts are taken as they are" in note for note in notes) == 1


@pytest.mark.parametrize("what", ["written to", "replaced", "manifest"])
def test_a_container_that_changed_between_opening_and_loading_is_noticed(tiny, tmp_path, what):
    copy = tmp_path / "m.uring"
    shutil.copytree(tiny.container.path, copy)
    opened = open_model(copy)
    name = "manifest.json" if what == "manifest" else "trunk.bin"
    if what == "written to":
        with (copy / name).open("r+b") as file:
            file.write(b"\0")
    else:
        (copy / name).rename(copy / "old")
        shutil.copy2(copy / "old", copy / name)
    with pytest.raises(IntegrityError, match=rf"{name} was replaced or written to after"):
        opened.load()


def test_a_container_that_learned_between_opening_and_loading_is_the_same(tiny, tmp_path):
    copy = tmp_path / "m.uring"
    shutil.copytree(tiny.container.path, copy)
    opened = open_model(copy)
    (copy / "usage.json").write_text("{}")
    opened.load().close()


def test_one_flipped_bit_of_the_tokenizer_is_told_at_opening(tiny, tmp_path):
    copy = tmp_path / "m.uring"
    shutil.copytree(tiny.container.path, copy)
    data = bytearray((copy / "tokenizer.json").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "tokenizer.json").write_bytes(data)
    with pytest.raises(IntegrityError, match=r"tokenizer\.json: checksum mismatch"):
        open_model(copy)


def test_tokenizing_with_a_damaged_tokenizer_of_a_container_is_refused_too(tiny, tmp_path):
    copy = tmp_path / "m.uring"
    shutil.copytree(tiny.container.path, copy)
    data = (copy / "tokenizer.json").read_bytes()
    (copy / "tokenizer.json").write_bytes(data.replace(b'"a"', b'"A"', 1))
    with pytest.raises(IntegrityError, match=r"tokenizer\.json: checksum mismatch"):
        Prompter.of_model(copy)
