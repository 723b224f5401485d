"""The four parsers of foreign bytes, fed with a corpus and with what mutation makes of it.

Whatever the bytes are, a parser returns or raises an error of this package of one line. Seconds of it run
the other tests; hours by hand with `pytest tests/fuzz -m slow --fuzz-seconds N`, and whole programs with
`scripts/torture.py parsers`. A file that broke a parser joins `corpus/`.
"""

import random
import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from tortures.mutations import mutate_bytes, mutate_text

from uringinfer.container.manifest_reader import read_manifest
from uringinfer.engine.session_file import read_header, read_session
from uringinfer.errors import UringinferError
from uringinfer.packing.gguf_header import read_gguf_header
from uringinfer.packing.safetensors_header import read_header as read_safetensors

CORPUS = Path(__file__).parent / "corpus"
FILES = [path for path in sorted(CORPUS.rglob("*")) if path.is_file()]
SLOW_SECONDS = 2.0
_CHECKSUM_KEY = b'"manifest_crc32"'


def sealed_manifest(data):
    """With a checksum of its own that agrees, so that what it says is looked at."""
    head = data[: data.rfind(_CHECKSUM_KEY)] if _CHECKSUM_KEY in data else data.rstrip()[:-1] + b",\n"
    return head + b'"manifest_crc32": "%08x"\n}\n' % zlib.crc32(head)


def mutate_manifest(data, rng):
    return sealed_manifest(mutate_text(data, rng)) if rng.random() < 0.8 else mutate_bytes(data, rng)


def mutate_shard(data, rng):
    """Mostly its header alone, with a length that agrees."""
    if len(data) < 16 or rng.random() < 0.4:
        return mutate_bytes(data, rng)
    (length,) = struct.unpack_from("<Q", data)
    header = changed_json(data[8 : 8 + length], rng)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def mutate_session(data, rng):
    """Mostly its header alone, with a length and a checksum that agree."""
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    _, version, length = struct.unpack_from("<8sII", data)
    header = changed_json(data[16 : 16 + length], rng)
    body = b"uringses" + struct.pack("<II", version, len(header)) + header + data[16 + length : -4]
    return body + struct.pack("<I", zlib.crc32(body))


def changed_json(text, rng):
    try:
        return mutate_text(text, rng)
    except (ValueError, RecursionError):  # no JSON: a file of the corpus that must stay refused
        return mutate_bytes(text, rng)


def parse_manifest(path):
    read_manifest(path.read_bytes())


def parse_session(path):
    arrays = {"keys": np.zeros((3, 4), np.float32), "logits": np.zeros(5, np.float32)}
    read_session(path, read_header(path), arrays)


PARSERS = {
    "gguf": (read_gguf_header, mutate_bytes),
    "manifest": (parse_manifest, mutate_manifest),
    "safetensors": (read_safetensors, mutate_shard),
    "session": (parse_session, mutate_session),
}


def survives(parse, path):
    """Asserts that the parser takes the file or refuses it in one line, soon."""
    began = time.process_time()
    try:
        parse(path)
    except UringinferError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 2000
    assert time.process_time() - began < SLOW_SECONDS


def test_every_parser_has_a_corpus_of_whole_files():
    for kind, (parse, _) in PARSERS.items():
        taken = 0
        for path in (path for path in FILES if path.parent.name == kind):
            try:
                parse(path)
                taken += 1
            except UringinferError:
                pass
        assert taken > 0, kind


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_of_the_corpus_is_taken_or_refused(path):
    survives(PARSERS[path.parent.name][0], path)


def fuzz_one(kind, directory, seed):
    parse, mutate = PARSERS[kind]
    rng = random.Random(seed)
    source = rng.choice([path for path in FILES if path.parent.name == kind])
    target = directory / "mutated"
    target.write_bytes(mutate(source.read_bytes(), rng))
    survives(parse, target)


@pytest.mark.parametrize("kind", PARSERS)
def test_what_mutation_makes_of_the_corpus_is_taken_or_refused(tmp_path, kind):
    for seed in range(300):
        fuzz_one(kind, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARSERS)
def test_hours_of_mutations_are_taken_or_refused(request, tmp_path, kind):
    seconds = request.config.getoption("--fuzz-seconds", 40.0) / len(PARSERS)
    seed = first = int(request.config.getoption("--fuzz-seed", 1))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            fuzz_one(kind, tmp_path, seed)
        except BaseException:
            print(f"seed {seed} of {kind}: the file is {tmp_path / 'mutated'}")
            raise
        seed += 1
    print(f"{seed - first} files of {kind}")
