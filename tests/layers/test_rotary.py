"""Rotary tables: positions, pairing and scalings against plain formulas."""

import math

import numpy as np
import pytest

from uringinfer.layers.rotary import (
    Rotary,
    default_frequencies,
    llama3_frequencies,
    yarn_frequencies,
    yarn_magnitude,
)


def test_tables_hold_the_angle_of_position_times_frequency():
    cos, sin = Rotary(np.array([1.0, 0.25], np.float32)).tables(3, 2)
    assert cos == pytest.approx(np.cos([[3.0, 0.75], [4.0, 1.0]]))
    assert sin == pytest.approx(np.sin([[3.0, 0.75], [4.0, 1.0]]))


def test_a_position_has_the_same_bits_wherever_its_table_starts():
    rotary = Rotary(default_frequencies(1e4, 128).astype(np.float32), 1.2)
    cos, sin = rotary.tables(0, 200)
    for position in (0, 1, 63, 131, 199):
        one_cos, one_sin = rotary.tables(position, 1)
        assert one_cos.tobytes() == cos[position].tobytes()
        assert one_sin.tobytes() == sin[position].tobytes()


def test_the_scale_multiplies_cosine_and_sine():
    plain, scaled = Rotary(np.ones(1, np.float32)), Rotary(np.ones(1, np.float32), 2.0)
    for one, two in zip(plain.tables(5, 1), scaled.tables(5, 1), strict=True):
        assert 2 * one == pytest.approx(two)


def test_llama3_keeps_short_waves_and_stretches_long_ones():
    frequencies = default_frequencies(500000.0, 128)
    scaled = llama3_frequencies(
        frequencies, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original=8192
    )
    wavelengths = 2 * math.pi / frequencies
    assert scaled[wavelengths < 8192 / 4] == pytest.approx(frequencies[wavelengths < 8192 / 4])
    assert scaled[wavelengths > 8192] == pytest.approx(frequencies[wavelengths > 8192] / 8)
    assert (np.diff(scaled) < 0).all()


def test_yarn_keeps_fast_channels_and_stretches_slow_ones():
    frequencies = default_frequencies(10000.0, 64)
    scaled = yarn_frequencies(
        frequencies,
        theta=10000.0,
        dim=64,
        factor=40.0,
        beta_fast=32.0,
        beta_slow=1.0,
        original=4096,
        truncate=True,
    )
    turns = 4096 * frequencies / (2 * math.pi)
    assert scaled[turns > 34] == pytest.approx(frequencies[turns > 34])
    assert scaled[turns < 0.7] == pytest.approx(frequencies[turns < 0.7] / 40)


def test_yarn_magnitude_is_one_without_stretching():
    assert yarn_magnitude(1.0) == 1.0
    assert yarn_magnitude(40.0, 0.707) == pytest.approx(0.0707 * math.log(40.0) + 1.0)
