"""The formats that others publish, with torch and transformers decoding live: equal bit for bit."""

import numpy as np
import pytest

from uringinfer.kernels.formats import weight_format

pytestmark = pytest.mark.slow


def test_every_e4m3_code_with_scales_of_blocks_is_worth_what_torch_says():
    torch = pytest.importorskip("torch", reason="the oracle is torch's float8_e4m3fn")
    rows, cols = 300, 500
    codes = np.add.outer(np.arange(rows), np.arange(cols)).astype(np.uint8)  # every code
    scales = np.random.default_rng(0).uniform(-3, 3, (3, 4)).astype(np.float32)
    values = torch.from_numpy(codes).view(torch.float8_e4m3fn).to(torch.float32)
    wide = torch.from_numpy(scales).repeat_interleave(128, 0).repeat_interleave(128, 1)
    expected = (values * wide[:rows, :cols]).numpy()
    form = weight_format("fp8")
    got = form.decode(form.join(rows, cols, [codes, scales]), rows, cols)
    numbers = (codes & 0x7F) != 0x7F
    np.testing.assert_array_equal(got.view(np.uint32)[numbers], expected.view(np.uint32)[numbers])
    assert np.isnan(got[~numbers]).all() and np.isnan(expected[~numbers]).all()


def test_every_mxfp4_byte_with_every_scale_is_worth_what_transformers_says():
    torch = pytest.importorskip("torch", reason="the oracle is transformers' decoder of MXFP4")
    mxfp4 = pytest.importorskip(
        "transformers.integrations.mxfp4", reason="the oracle is its decoder of MXFP4"
    )
    rows, groups = 256, 255  # scale 255 is a NaN in the standard, which nobody agrees about
    blocks = np.add.outer(np.arange(rows), np.arange(groups * 16)).astype(np.uint8)
    scales = np.tile(np.arange(groups, dtype=np.uint8), (rows, 1))
    published = mxfp4.convert_moe_packed_tensors(
        torch.from_numpy(blocks.reshape(1, rows, groups, 16)),
        torch.from_numpy(scales[None]),
        dtype=torch.float32,
    )
    expected = np.ascontiguousarray(published[0].numpy().T)
    form = weight_format("mxfp4")
    with np.errstate(over="ignore"):  # of 2^127
        got = form.decode(form.join(rows, groups * 32, [blocks, scales]), rows, groups * 32)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
