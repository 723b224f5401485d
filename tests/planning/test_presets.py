from uringinfer.planning.presets import PRESETS


def test_presets_give_the_trunk_3_16_60_and_110_decimal_gigabytes():
    assert {name: preset.trunk_bytes for name, preset in PRESETS.items()} == {
        "laptop": 3_000_000_000,
        "desktop": 16_000_000_000,
        "workstation": 60_000_000_000,
        "server": 110_000_000_000,
    }
