import pytest

from uringinfer.errors import UsageError
from uringinfer.planning.presets import PRESETS, find_preset


def test_presets_give_the_trunk_3_16_60_and_110_decimal_gigabytes():
    assert {name: preset.trunk_bytes for name, preset in PRESETS.items()} == {
        "laptop": 3_000_000_000,
        "desktop": 16_000_000_000,
        "workstation": 60_000_000_000,
        "server": 110_000_000_000,
    }


def test_an_unknown_preset_is_refused_with_those_that_exist():
    with pytest.raises(UsageError, match=r"'phone'.*laptop, desktop, workstation, server"):
        find_preset("phone")
