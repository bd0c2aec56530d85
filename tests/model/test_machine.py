"""OpenMP's workers: one thread's must not be in the way of another's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specrace.model import machine

# A process of its own: its OpenMP has two threads, however many the tests' has.
COMPUTES = """
import os, time, torch
from specrace.model.machine import release_threads

def compute():
    torch.set_num_threads(2)
    torch.ones(4_000_000).add_(1.0)

def count():
    return len(os.listdir("/proc/self/task"))

compute()
before = count()
release_threads()
until = time.monotonic() + 60.0  # they end in their own time
while count() == before and time.monotonic() < until:
    time.sleep(0.01)
print(before - count())
compute()
print(before - count())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_workers_end_and_the_next_product_starts_new_ones() -> None:
    done = subprocess.run([sys.executable, "-c", COMPUTES], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["1", "0"]


def test_without_gnus_openmp_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(machine, "_MAPS", maps)
    machine.release_threads()
    maps.write_text("7f00-7f01 r-xp 00000000 00:00 0 /usr/lib/libc.so.6\n")
    machine.release_threads()
