"""From a checkpoint to a container: checks it, lays it out in order of execution, writes it."""

from uringinfer.packing.packer import PackReport, pack

__all__ = ["PackReport", "pack"]
