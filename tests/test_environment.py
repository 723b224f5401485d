import pytest

from uringinfer.environment import native_enabled


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True), ("", True)])
def test_only_zero_switches_native_code_off(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    monkeypatch.setenv("URINGINFER_NATIVE", value)
    assert native_enabled() is expected


def test_native_code_is_on_when_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("URINGINFER_NATIVE", raising=False)
    assert native_enabled()
