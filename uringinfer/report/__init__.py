"""What a run did, in numbers: as text for a person, as JSON for a script.

Counters are read at three moments (before the prompt, before decoding, at the end); everything here is a
difference between two of them.
"""

from uringinfer.report.phases import BOUND_WAIT_SHARE, Bound, Phase, Snapshot
from uringinfer.report.run import DraftStatistics, RunStatistics, excess, excess_notes
from uringinfer.report.setup import Setup

__all__ = [
    "BOUND_WAIT_SHARE",
    "Bound",
    "DraftStatistics",
    "Phase",
    "RunStatistics",
    "Setup",
    "Snapshot",
    "excess",
    "excess_notes",
]
