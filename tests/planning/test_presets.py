from uringinfer.planning.presets import PRESETS


def test_presets_give_trunk_and_expert_cache_their_decimal_gigabytes():
    assert {name: (preset.trunk_bytes, preset.cache_bytes) for name, preset in PRESETS.items()} == {
        "laptop": (3_000_000_000, 1_000_000_000),
        "desktop": (16_000_000_000, 10_000_000_000),
        "workstation": (60_000_000_000, 30_000_000_000),
        "server": (110_000_000_000, 13_000_000_000),
    }
