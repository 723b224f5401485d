"""The packed model on disk: its manifest, how it is opened, and whether its bytes are what they were."""

from uringinfer.container.container import Container, Placement
from uringinfer.container.manifest import ALIGNMENT, AuxiliaryFile, Bank, Manifest, Segment, TensorPart

__all__ = [
    "ALIGNMENT",
    "AuxiliaryFile",
    "Bank",
    "Container",
    "Manifest",
    "Placement",
    "Segment",
    "TensorPart",
]
