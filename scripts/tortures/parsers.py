"""Hostile files: manifests, configs, headers, GGUF files, sessions, chat templates.

Whatever they hold, they are taken or refused with an error of this package, within seconds and in little
memory.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tortures.common import MEMORY, SECONDS, forked, import_everything, make_models, random_of
from tortures.mutations import mutate_bytes, mutate_json, mutate_text

TEMPLATES = (
    "{{ 'a' * 10**10 }}",
    "{% for i in range(10**9) %}{% for j in range(10**9) %}{% endfor %}{% endfor %}",
    "{{ ''.join(['a' * 10**6] * 10**6) }}",
    "{{ messages[0].__class__.__mro__ }}",
    "{{ ''.__class__.__base__.__subclasses__() }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}",
    "{{ range(10**8)|list|length }}",
    "{% set x = namespace(v='a') %}{% for i in range(64) %}{% set x.v = x.v + x.v %}{% endfor %}{{ x.v }}",
    "{{ 2 ** 2 ** 2 ** 2 ** 2 ** 2 }}",
    "{{ messages|tojson(indent=10**9) }}",
    "{{ 'a'|center(10**10) }}",
    "{% include 'a' %}",
    "{{ messages[99].content }}",
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% if tools %}{{ tools|tojson }}{% endif %}{{ bos_token }}{{ messages[0]['content']|trim }}",
    "{{ raise_exception('no') }}",
    "{{ strftime_now('%Y' * 10**7) }}",
)


def prepare(directory: Path) -> dict[str, Any]:
    import_everything()
    import tortures.fork_made as made_in_fork

    paths = make_models(directory)
    session = directory / "session"
    if not session.exists():
        saved = forked(lambda: made_in_fork.save_session(paths["dense"], session))
        if saved.kind != "returned":
            raise RuntimeError(f"no session could be saved: {saved.error}")
    return {**paths, "session": session, "directory": directory}


def run(made: dict[str, Any], number: int, seed: int) -> str | None:
    rng = random_of(seed, "parsers", number)
    kind = list(KINDS)[number % len(KINDS)]
    with tempfile.TemporaryDirectory(dir=made["directory"]) as scratch:
        work = KINDS[kind](made, Path(scratch), rng)
        outcome = forked(work, SECONDS)
    if outcome.kind in ("raised", "killed", "hung"):
        return f"{kind}: {outcome.kind}: {outcome.error}"
    if outcome.peak > MEMORY:
        return f"{kind}: {outcome.peak >> 20} MiB at the most"
    return None


def _linked(source: Path, target: Path) -> Path:
    """A copy of a directory whose large files are links."""
    target.mkdir()
    for file in source.iterdir():
        if file.suffix in (".bin", ".safetensors"):
            (target / file.name).hardlink_to(file)
        else:
            shutil.copy(file, target)
    return target


def _sealed(data: bytes) -> bytes:
    """With a checksum of its own that agrees, so that what it says is looked at."""
    key = b'"manifest_crc32"'
    head = data[: data.rfind(key)] if key in data else data.rstrip()[:-1] + b",\n"
    return head + b'"manifest_crc32": "%08x"\n}\n' % zlib.crc32(head)


def _open(path: Path) -> None:
    from uringinfer.container.verifier import verify
    from uringinfer.engine.opening import open_model

    open_model(path)
    verify(path)


def _manifest(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    copy = _linked(made[rng.choice(("dense", "moe", "quantised"))], scratch / "m.uring")
    manifest = copy / "manifest.json"
    data = mutate_text(manifest.read_bytes(), rng)
    manifest.write_bytes(_sealed(data) if rng.random() < 0.8 else data)
    return lambda: _open(copy)


def _resealed_config(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    copy = _linked(made[rng.choice(("dense", "moe"))], scratch / "m.uring")
    document = json.loads((copy / "manifest.json").read_text())
    document["config"] = mutate_json(document["config"], rng)
    (copy / "manifest.json").write_bytes(_sealed(json.dumps(document).encode()))
    return lambda: _load(copy)


def _load(path: Path) -> None:
    import uringinfer

    with uringinfer.load(path, budget=256 << 20, context=64) as engine:
        engine.generate([1, 2], max_tokens=1)


def _config(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    copy = _linked(made[rng.choice(("dense checkpoint", "moe checkpoint"))], scratch / "m")
    config = copy / "config.json"
    config.write_bytes(mutate_text(config.read_bytes(), rng))
    return lambda: _plan(copy)


def _plan(path: Path) -> None:
    from uringinfer.engine.opening import open_to_plan
    from uringinfer.packing.packer import pack

    open_to_plan(path)
    pack(path, path.with_name("out.uring"), dry_run=True)


def _safetensors(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    copy = _linked(made["dense checkpoint"], scratch / "m")
    shard = rng.choice(sorted(copy.glob("*.safetensors")))
    data = shard.read_bytes()
    shard.unlink()
    (length,) = struct.unpack_from("<Q", data)
    if rng.random() < 0.6:
        header = mutate_text(data[8 : 8 + length], rng)
        shard.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
    else:
        shard.write_bytes(mutate_bytes(data[: 8 + length], rng) + data[8 + length :])
    return lambda: _plan(copy)


def _gguf(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    data = made["gguf"].read_bytes()
    head = rng.choice((200, 2000, 20_000))
    copy = scratch / "m.gguf"
    copy.write_bytes(mutate_bytes(data[:head], rng) + data[head:])
    return lambda: _plan(copy)


def _session(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    data = made["session"].read_bytes()
    _, version, length = struct.unpack_from("<8sII", data)
    if rng.random() < 0.6:  # with a checksum that agrees
        header = mutate_text(data[16 : 16 + length], rng)
        body = b"uringses" + struct.pack("<II", version, len(header)) + header + data[16 + length : -4]
        data = body + struct.pack("<I", zlib.crc32(body))
    else:
        data = mutate_bytes(data, rng)
    copy = scratch / "session"
    copy.write_bytes(data)
    import tortures.fork_made as made_in_fork

    return lambda: made_in_fork.restore_session(made["dense"], copy)


def _template(made: dict[str, Any], scratch: Path, rng: random.Random) -> Callable[[], object]:
    text = rng.choice(TEMPLATES).encode()
    if rng.random() < 0.7:
        text = mutate_bytes(text + rng.choice(TEMPLATES).encode(), rng)
    template = scratch / "template.jinja"
    template.write_bytes(text)
    return lambda: _render(made["dense"], template)


def _render(model: Path, template: Path) -> None:
    from uringinfer.engine.prompt import Prompter

    prompter = Prompter(model, template)
    prompter.render([{"role": "user", "content": "Hi"}], {})


KINDS: dict[str, Callable[[dict[str, Any], Path, random.Random], Callable[[], object]]] = {
    "manifest": _manifest,
    "resealed config": _resealed_config,
    "config": _config,
    "safetensors": _safetensors,
    "gguf": _gguf,
    "session": _session,
    "template": _template,
}
