"""How a model is opened: its container is found or made, and all that a run needs besides weights comes into
memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from uringinfer.container.container import Container
from uringinfer.container.small_files import check_small_files
from uringinfer.engine.loading import OpenModel, Progress
from uringinfer.engine.memory import peak_resident_bytes, warm_up
from uringinfer.engine.prompt import Prompter
from uringinfer.engine.source import MANIFEST, find_container
from uringinfer.errors import UsageError
from uringinfer.kernels import open_kernels
from uringinfer.models import model_from_config
from uringinfer.models.container_fit import check_fit
from uringinfer.packing.layout import SegmentSize, cut_trunk, make_layout
from uringinfer.packing.sources import open_source
from uringinfer.units import format_size

_LOG = logging.getLogger(__name__)

Announce = Callable[[str], None]
"""Called with one line of text about something long that is about to begin."""


def open_model(
    path: str | Path,
    *,
    threads: int | None = None,
    native: bool | None = None,
    pack_dir: Path | None = None,
    chat_template: Path | None = None,
    experts_per_token: int | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> OpenModel:
    """Opens the model at `path`: a container, or a checkpoint directory or GGUF file, which is packed first.

    `native` None takes the native kernels if they are there, True insists on them. A checkpoint is packed
    once, into `pack_dir` or the user's cache directory, after `announce` was told. `chat_template` is a file
    that takes the place of the model's own template. `experts_per_token` makes each token use so many
    experts instead of what the model was trained with: the one option that changes answers.

    Raises UsageError if there is no model at `path`, UnsupportedModelError for a family that is not known,
    IntegrityError for damaged files.
    """
    began = time.perf_counter()
    peak_before = peak_resident_bytes()
    container = Container.open(find_container(Path(path), pack_dir, progress, announce))
    config = container.manifest.config
    model = model_from_config(config, experts_per_token=experts_per_token)
    notes = []
    if experts_per_token is not None:
        own = model_from_config(config).experts_per_token
        if experts_per_token != own:
            notes.append(
                f"{experts_per_token} experts per token instead of the model's {own}: this changes answers"
            )
    check_fit(model, container.manifest)
    check_small_files(container.path, container.manifest)
    kernels = open_kernels(native, threads)
    prompter = Prompter(container.path, chat_template)
    warm_up(kernels)
    peak = peak_resident_bytes()
    opening_peak = peak if peak > peak_before else 0
    _LOG.debug("opened %s in %.3f s, %s kernels", container.path, time.perf_counter() - began, kernels.name)
    return OpenModel(container, model, prompter, kernels, opening_peak=opening_peak, notes=notes)


def open_to_plan(path: str | Path, segment: SegmentSize | None = None) -> OpenModel:
    """The model at `path` to plan with: a container, or a checkpoint as its container would be (with
    `segment`, see `pack`), whatever its size. Nothing is written.

    Raises UsageError for a `segment` where a container is already, and what opening and packing raise before
    anything is written.
    """
    path = Path(path)
    if (path / MANIFEST).is_file():
        if segment is not None:
            raise UsageError(f"{path} is packed already", hint="leave --segment out")
        return open_model(path)
    source = open_source(path)
    try:
        model = model_from_config(source.config)
        chosen = segment or "auto"
        container = Container(path, make_layout(model, source, chosen).manifest)
        cuts = {_cut_name(chosen): container.segments}
        cuts |= {name: cut_trunk(model, source, name) for name in ("layer", "auto") if name != chosen}
    finally:
        source.close()
    return OpenModel(container, model, Prompter.of_model(path), open_kernels(), is_packed=False, cuts=cuts)


def _cut_name(segment: SegmentSize) -> str:
    return format_size(segment) if isinstance(segment, int) else segment
