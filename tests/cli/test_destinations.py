"""Outputs may be regular or new files, and no inputs; any other path is refused before the work begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from specrace.cli import race
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.core.files import check_destination, write_atomically
from specrace.engine import recording
from specrace.model import loading

COMMANDS = [
    ("race", "Why?", "--json", "--save"),
    ("calibrate", "--json", "--out"),
    ("score", "none.jsonl", "--csv"),
    ("recommend", "none.jsonl", "--report"),
]
# Commands whose output is also their input: given as a file, as a link to it, as a part of an argument, as a name in a
# folder.
SAME_FILE = [
    ("score", "{file}", "--csv", "{file}"),
    ("score", "{link}", "--csv", "{file}"),
    ("recommend", "{file}", "--lanes", "trie", "--report", "{file}"),
    ("answers", "--questions", "{file}", "--save-transcripts", "{file}"),
    ("bench", "--prompts={file}", "--save-transcripts", "{file}"),
    ("race", "Why?", "--docs", "{file}", "--save", "{file}"),
    ("race", "Why?", "--settings", "{file}", "--save", "{file}"),
    ("race", "Why?", "--head", "eagle={file}", "--save", "{file}"),
    ("export", "{report}", "--html", "{report}"),
    ("bench", "--prompts", "{file}", "--out", "{folder}"),
    ("compare", "--server", "a=http://a:1", "--prompts", "{folder}/result.json", "--out", "{folder}"),
    ("recommend", "{folder}/specrace-settings.json", "--out", "{folder}"),
    ("paper", "figure4", "{folder}/figure4.csv", "--out", "{folder}"),
    ("site", "{folder}", "--report", "{report}"),
]


def link(path: Path) -> None:
    (path.parent / "target").write_text("kept")
    path.symlink_to(path.parent / "target")


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/full")


# Kind of path -> (a function that makes it, what the error calls it). A pipe is used instead of a device, because a bug
# could delete a device; a link to a device is safe, because a bug could delete only the link.
KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (Path.mkdir, "a folder"),
    "link": (link, "a symbolic link"),
    "dangling link": (dangling_link, "a symbolic link"),
    "link to a device": (link_to_a_device, "a symbolic link"),
    "pipe": (os.mkfifo, "a device or a pipe"),
}


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Mode and inode of everything in a folder; a replaced file has another inode."""
    return {entry.name: (entry.lstat().st_mode, entry.lstat().st_ino) for entry in folder.iterdir()}


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a race or a measurement begins."""

    def begin(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(race, "open_workbench", begin)
    monkeypatch.setattr(loading, "load_choice", begin)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_is_not_a_regular_file_is_refused_before_the_work(
    call_main, tmp_path: Path, command, kind: str
) -> None:
    make, words = KINDS[kind]
    path = tmp_path / "out"
    make(path)
    before = state(tmp_path)
    done = call_main(*command, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(path) in done.stderr and words in done.stderr and done.stderr.count("\n") == 1
    assert state(tmp_path) == before


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("file", ["/proc/self/out.json", "/no/such/folder/out.json"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(call_main, command, file: str) -> None:
    # Not even root can write in /proc/self.
    done = call_main(*command, file)
    assert done.returncode == 2 and "cannot be written" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", SAME_FILE, ids=" ".join)
def test_a_command_never_replaces_its_input(call_main, tmp_path: Path, command) -> None:
    for name in ("bench.json", "result.json", "specrace-settings.json", "figure4.csv", "index.html"):
        (tmp_path / name).write_text("<!doctype html><title>x · specrace</title>")
    (tmp_path / "link").symlink_to(tmp_path / "bench.json")
    names = {"file": "bench.json", "link": "link", "report": "index.html", "folder": ""}
    before = state(tmp_path)
    done = call_main(*(word.format(**{key: tmp_path / name for key, name in names.items()}) for word in command))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is an input too" in done.stderr and done.stderr.count("\n") == 1
    assert state(tmp_path) == before


def test_an_output_without_a_name_is_refused(call_main) -> None:
    done = call_main("score", "none.jsonl", "--csv", "")
    assert (done.returncode, done.stderr) == (2, "--csv names no file; give one, or leave --csv out.\n")


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_the_check_of_a_destination_refuses_a_device(device: str) -> None:
    with pytest.raises(InputError, match=rf"{device} cannot be written \(it is a device"):
        check_destination(Path(device))


def test_new_and_regular_files_are_accepted(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("kept")
    for path in (old, tmp_path / "new"):
        check_destination(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"] and old.read_text() == "kept"


@pytest.mark.parametrize("kind", KINDS)
def test_writers_refuse_a_path_that_is_not_a_regular_file(tmp_path: Path, kind: str) -> None:
    """Writers check the path again: it may have appeared during the work, and a library's caller checks nothing."""
    path = tmp_path / "out"
    KINDS[kind][0](path)
    before = state(tmp_path)
    with pytest.raises(InputError, match=KINDS[kind][1]):
        recording.save([Started((), 1, 0.0, {}), Finished(())], path)
    with pytest.raises(OSError, match=KINDS[kind][1]):
        write_atomically(path, b"other")
    assert state(tmp_path) == before
