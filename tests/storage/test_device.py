"""Devices from a fake sysfs, laid out as the kernel does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from uringinfer.storage.device import find_device


class FakeKernel:
    """A sysfs and a /proc in which the file behind `fd` lies on the device that a test makes."""

    def __init__(self, root: Path, fd: int) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.number = os.fstat(fd).st_dev
        (self.sys / "dev/block").mkdir(parents=True)
        (self.proc / "self").mkdir(parents=True)

    def add(self, path: str, files: dict[str, str] | None = None) -> Path:
        directory = self.sys / "devices" / path
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in (files or {}).items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text + "\n")
        return directory

    def link(self, directory: Path, number: int | None = None) -> None:
        number = self.number if number is None else number
        (self.sys / f"dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(directory)


@pytest.fixture
def fd(tmp_path: Path) -> int:
    return os.open(tmp_path, os.O_RDONLY)


@pytest.fixture
def kernel(tmp_path: Path, fd: int) -> FakeKernel:
    return FakeKernel(tmp_path, fd)


PCIE = {"current_link_speed": "16.0 GT/s PCIe", "current_link_width": "4"}


def test_an_nvme_partition_is_its_whole_drive_below_the_pcie_links_rate(kernel: FakeKernel, fd: int) -> None:
    kernel.add("pci0/0000:01:00.0", PCIE)
    drive = kernel.add(
        "pci0/0000:01:00.0/nvme/nvme0/nvme0n1", {"device/model": "FAST 990 ", "device/serial": "S1"}
    )
    kernel.link(kernel.add("pci0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2", {"partition": "2"}))
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert (device.name, device.model, device.bus) == (drive.name, "FAST 990", "PCIe 16 GT/s x4")
    assert device.ceiling == pytest.approx(16e9 * 4 * 128 / 130 / 8)
    assert device.key == "FAST 990 S1"


def test_the_narrowest_link_on_the_way_counts(kernel: FakeKernel, fd: int) -> None:
    kernel.add("pci0/0000:00:01.0", {"current_link_speed": "2.5 GT/s PCIe", "current_link_width": "1"})
    kernel.add("pci0/0000:00:01.0/0000:01:00.0", PCIE)
    kernel.link(kernel.add("pci0/0000:00:01.0/0000:01:00.0/nvme/nvme0/nvme0n1"))
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert device.ceiling == pytest.approx(0.25e9)  # PCIe 1.0 x1


def test_a_sata_drive_is_bound_by_its_port(kernel: FakeKernel, fd: int) -> None:
    kernel.add("pci0/0000:00:17.0", PCIE)
    kernel.add("pci0/0000:00:17.0/ata3", {"link3/ata_link/link3/sata_spd": "6.0 Gbps"})
    kernel.link(kernel.add("pci0/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda"))
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert (device.bus, device.ceiling) == ("SATA 6.0 Gbps", pytest.approx(0.6e9))


def test_a_usb_drive_is_bound_by_its_port(kernel: FakeKernel, fd: int) -> None:
    kernel.add("pci0/usb1/1-1", {"idVendor": "1234", "speed": "480"})
    kernel.link(kernel.add("pci0/usb1/1-1/1-1:1.0/host5/block/sdb"))
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert (device.bus, device.ceiling) == ("USB 480 Mbit/s", 60e6)


def test_a_set_of_drives_adds_their_rates(kernel: FakeKernel, fd: int) -> None:
    array = kernel.add("virtual/block/md0")
    (array / "slaves").mkdir()
    for number in (1, 2):
        kernel.add(f"pci{number}/0000:0{number}:00.0", PCIE)
        drive = kernel.add(f"pci{number}/0000:0{number}:00.0/nvme/nvme{number}/nvme{number}n1")
        (array / "slaves" / drive.name).symlink_to(drive)
    kernel.link(array)
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert device.bus == "2 devices"
    assert device.ceiling == pytest.approx(2 * 16e9 * 4 * 128 / 130 / 8)


def test_a_drive_on_an_unknown_bus_has_no_ceiling_and_its_name_as_key(kernel: FakeKernel, fd: int) -> None:
    kernel.link(kernel.add("pci0/virtio1/block/vda"))
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert (device.bus, device.ceiling, device.key) == (None, None, "vda")


def test_a_file_system_with_a_number_of_its_own_is_found_by_its_mount(
    kernel: FakeKernel, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = f"{os.major(kernel.number)}:{os.minor(kernel.number)}"
    (kernel.proc / "self/mountinfo").write_text(
        f"30 1 0:5 / /other rw - proc proc rw\n36 1 {number} /sub /data rw,noatime - btrfs /dev/zero rw\n"
    )
    kernel.link(kernel.add("pci0/virtio1/block/vdb"), Path("/dev/zero").stat().st_rdev)
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert device.name == "vdb"


@pytest.mark.parametrize(
    ("name", "files", "cached_by"),
    [
        ("loop3", {"loop/backing_file": "/image", "loop/dio": "0"}, "the page cache"),
        ("loop3", {"loop/backing_file": "/image", "loop/dio": "1"}, None),
        ("zram0", {}, "memory"),
        ("ram12", {}, "memory"),
        ("vda", {}, None),
    ],
)
def test_a_device_that_is_no_drive_tells_what_it_is_read_through(
    kernel: FakeKernel, fd: int, name: str, files: dict[str, str], cached_by: str | None
) -> None:
    kernel.link(kernel.add(f"virtual/block/{name}", files))
    device = find_device(fd, sys=kernel.sys, proc=kernel.proc)
    assert device is not None
    assert device.cached_by == cached_by


def test_a_file_in_memory_has_no_device(kernel: FakeKernel, fd: int) -> None:
    assert find_device(fd, sys=kernel.sys, proc=kernel.proc) is None
