"""Free memory under container limits, and the release of OpenMP's workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specrace.core import processors
from specrace.model.machine import memory
from tests import processes

# Runs in its own process, where OpenMP has exactly two threads. Prints how many fewer threads than before there are,
# after a release and after the next operation.
SCRIPT = """
import os, time, torch
from specrace.model.machine.memory import release_threads

def compute():
    torch.set_num_threads(2)
    torch.ones(4_000_000).add_(1.0)

def count():
    return len(os.listdir("/proc/self/task"))

compute()
before = count()
release_threads()
deadline = time.monotonic() + 300.0  # the workers end asynchronously
while count() == before and time.monotonic() < deadline:
    time.sleep(0.01)
print(before - count())
compute()
print(before - count())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_released_workers_end_and_the_next_operation_starts_new_ones() -> None:
    done = processes.run(["-c", SCRIPT])
    assert done.stdout.split() == ["1", "0"], done.stderr


GB = 1_000_000_000
# The number by which control groups of version 1 say that there is no limit.
UNLIMITED = "9223372036854771712"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the control groups, on a machine with 64 GB available."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {64 * GB // 1024} kB\n")
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    for name, path in (("_GROUPS", "groups"), ("_OWN_GROUPS", "own")):
        monkeypatch.setattr(processors, name, tmp_path / path)
    return tmp_path / "groups"


def write_limit(
    folder: Path, *, version: int, max_bytes: int | str, used: int, cached: tuple[int, int] = (0, 0)
) -> None:
    """Write a control group's files as the kernel does; `cached` is its file cache's active and inactive bytes."""
    if version == 2:
        names, prefix = ("memory.max", "memory.current"), ""
    else:
        names, prefix = ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (max_bytes, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    active, inactive = cached
    stat = f"anon 5\n{prefix}active_file {active}\n{prefix}inactive_file {inactive}\n{prefix}active_anon 7\n"
    (folder / "memory.stat").write_text(stat)


@pytest.mark.parametrize(
    ("version", "cgroup", "top"), [(2, "0::{path}\n", ""), (1, "5:cpu:/x\n4:hugetlb,memory:{path}\n0::/\n", "memory")]
)
def test_a_containers_limit_bounds_free_memory(groups: Path, version: int, cgroup: str, top: str) -> None:
    cgroup_file, top_group = groups.parent / "own", groups / top
    cgroup_file.write_text(cgroup.format(path="/"))
    assert memory.free_memory() == 64 * GB // 1024 * 1024, "without limits, the host's memory"
    write_limit(top_group, version=version, max_bytes=8 * GB, used=5 * GB, cached=(GB, 2 * GB))
    assert memory.free_memory() == 6 * GB
    # The limit of an enclosing group also counts. In a container that sees only its own group, the path does not exist.
    for path in ("/docker/ab12", "/docker/ab12/inner"):
        cgroup_file.write_text(cgroup.format(path=path))
        assert memory.free_memory() == 6 * GB
    write_limit(top_group / "docker" / "ab12", version=version, max_bytes=4 * GB, used=GB)
    write_limit(
        top_group / "docker" / "ab12" / "inner",
        version=version,
        max_bytes="max" if version == 2 else UNLIMITED,
        used=GB,
    )
    assert memory.free_memory() == 3 * GB
    write_limit(top_group / "docker" / "ab12", version=version, max_bytes=4 * GB, used=5 * GB)
    assert memory.free_memory() == 0


def test_release_threads_does_nothing_without_gnus_openmp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(memory, "_MAPS", maps)
    memory.release_threads()
    maps.write_text("7f00-7f01 r-xp 00000000 00:00 0 /usr/lib/libc.so.6\n")
    memory.release_threads()
