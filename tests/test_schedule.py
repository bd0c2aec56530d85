"""The schedule of the whole run: it replaces parts of xdist's scheduler, and names files."""

from __future__ import annotations

from pathlib import Path

from xdist.scheduler import LoadFileScheduling

from tests.schedule import SLOW_FILES, Scheduling

ROOT = Path(__file__).parents[1]


def test_every_part_of_the_schedule_replaces_one_of_xdist() -> None:
    """xdist calls these by name; after a change of names it would ignore ours, and start the slowest files last."""
    replaced = {name for name, part in vars(Scheduling).items() if callable(part)}
    assert len(replaced) == 3 and replaced <= set(dir(LoadFileScheduling))


def test_the_slow_files_exist() -> None:
    assert [file for file in SLOW_FILES if not (ROOT / file).is_file()] == []
