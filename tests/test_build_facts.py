from uringinfer import build_facts
from uringinfer.storage.denial import Denial


def test_liburings_version_is_read_from_the_mapped_file(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "maps").write_text(
        "7f00-7f01 r-xp 00000000 08:01 42   /usr/lib/x86_64-linux-gnu/libc.so.6\n"
        "7f02-7f03 r-xp 00000000 08:01 43   /usr/lib/x86_64-linux-gnu/liburing.so.2.3\n"
    )
    assert build_facts.liburing_version(tmp_path) == "2.3"


def test_without_liburing_there_is_no_version(tmp_path):
    assert build_facts.liburing_version(tmp_path) is None


def test_a_denied_ring_tells_why(monkeypatch):
    monkeypatch.delenv("URINGINFER_NATIVE", raising=False)
    monkeypatch.setattr(build_facts, "open_ring", lambda depth: Denial("a seccomp filter denies it", "x"))
    assert build_facts.read_build_facts().io_uring == "none: a seccomp filter denies it"


def test_modules_that_are_switched_off_are_said_to_be(monkeypatch):
    monkeypatch.setenv("URINGINFER_NATIVE", "0")
    facts = build_facts.read_build_facts()
    assert "URINGINFER_NATIVE=0" in facts.io_uring
    assert "URINGINFER_NATIVE=0" in facts.kernels


def test_a_package_that_is_missing_has_no_version(monkeypatch):
    monkeypatch.setattr(build_facts, "_LIBRARIES", ("numpy", "no-such-package"))
    facts = build_facts.read_build_facts()
    assert facts.libraries["no-such-package"] is None
    assert "no-such-package missing" in facts.to_text()
    assert facts.to_json()["libraries"]["numpy"]
