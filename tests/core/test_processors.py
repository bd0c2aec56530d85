"""How many processors a container may use, and the name of the processor's model."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from specrace.core import processors as module


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the control groups, on a machine with 64 processors; tests put this process in "/docker/ab"."""
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(module, "_GROUPS", tmp_path)
    monkeypatch.setattr(module, "_OWN_GROUPS", tmp_path / "own")
    return tmp_path


# A quota, "QUOTA PERIOD" in microseconds, is the processor time that the group may use in each period.
@pytest.mark.parametrize(
    ("quota", "parent_quota", "count"),
    [("max 100000", "max 100000", 64), ("250000 100000", "max 100000", 2), ("max 100000", "800000 100000", 8),
     ("50000 100000", "800000 100000", 1), ("nonsense", "1 0", 64)],
)  # fmt: skip
def test_the_lowest_limit_counts(groups: Path, quota: str, parent_quota: str, count: int) -> None:
    (groups / "own").write_text("0::/docker/ab\n")
    (groups / "docker" / "ab").mkdir(parents=True)
    (groups / "docker" / "ab" / "cpu.max").write_text(f"{quota}\n")
    (groups / "cpu.max").write_text(f"{parent_quota}\n")
    assert module.count_processors() == count


@pytest.mark.parametrize(("quota", "count"), [("-1", 64), ("300000", 3)])
def test_limits_of_version_1_groups_count_too(groups: Path, quota: str, count: int) -> None:
    (groups / "own").write_text("4:memory:/elsewhere\n3:cpu,cpuacct:/docker/ab\n")
    # In a container the process's own group is mounted at the top.
    (groups / "cpu").mkdir()
    (groups / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert module.count_processors() == count


def test_without_groups_the_affinity_counts(groups: Path) -> None:
    assert not (groups / "own").exists() and module.count_processors() == 64


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 7B13\n\nprocessor\t: 1\nmodel name\t: another\n", "AMD EPYC 7B13"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "CPU implementer 0x41, CPU part 0xd0c"),
    ],
)
def test_linux_names_the_processor(info: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(info)
    monkeypatch.setattr(module, "_INFO", tmp_path / "cpuinfo")
    assert module.processor_name.__wrapped__() == name


def test_without_linux_python_names_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INFO", tmp_path / "missing")
    assert module.processor_name.__wrapped__() == (platform.processor() or platform.machine())
