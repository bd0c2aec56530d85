"""The parsers' child process: its answers, and files that take too much time or memory."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.retrieval.limits import COMMAND_LINE
from specrace.retrieval.readers.reading import Reading
from specrace.retrieval.sandbox import Sandbox
from tests.retrieval.readers import samples


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(COMMAND_LINE) as opened:
        yield opened


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.html"
    file.write_text("<h1>Owls</h1>They see.")
    return file


def texts(answers: list[tuple[str, Reading | str]]) -> list[tuple[str, str]]:
    """(member, its text or the reason why it was not read) of each answer."""
    return [(member, answer if isinstance(answer, str) else answer.text.strip()) for member, answer in answers]


def test_all_files_are_read_in_one_child_process(sandbox: Sandbox, page: Path) -> None:
    assert texts(list(sandbox.read(page, COMMAND_LINE))) == [("", "They see.")]
    first = sandbox._process
    assert first is not None and first.pid != os.getpid()
    assert texts(list(sandbox.read(page, COMMAND_LINE))) == [("", "They see.")]
    assert sandbox._process is first
    sandbox.close()
    assert first.poll() is not None


def test_a_file_that_takes_too_long_ends_only_the_child_process(sandbox: Sandbox, tmp_path: Path, page: Path) -> None:
    slow_file = tmp_path / "slow.html"
    slow_file.write_bytes(b"<p>word" * 1_000_000)
    ((member, sentence),) = sandbox.read(slow_file, replace(COMMAND_LINE, seconds=0.0))
    assert (member, sentence) == ("", "takes more than 0 seconds to read: give a smaller file.")
    assert sandbox._process is None
    assert texts(list(sandbox.read(page, COMMAND_LINE))) == [("", "They see.")]


def test_all_files_together_have_a_time_limit_too(tmp_path: Path, page: Path) -> None:
    slow_file = tmp_path / "slow.html"
    slow_file.write_bytes(b"<p>word" * 1_000_000)
    with Sandbox(replace(COMMAND_LINE, total_seconds=1e-6)) as sandbox:
        assert "takes more than 1e-06 seconds" in str(list(sandbox.read(slow_file, COMMAND_LINE)))
        sentence = "is left out: all files together take more than 1e-06 seconds to read."
        assert list(sandbox.read(page, COMMAND_LINE)) == [("", sentence)] and sandbox._process is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the memory limit")
def test_a_file_that_takes_too_much_memory_is_reported(tmp_path: Path, page: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b"[" + b"{}," * 4_000_000 + b"{}]")
    # Four million objects of 64 bytes take more.
    with Sandbox(replace(COMMAND_LINE, memory_bytes=200_000_000)) as sandbox:
        assert list(sandbox.read(large, COMMAND_LINE)) == [("", "takes too much memory to read: give a smaller file.")]
        assert texts(list(sandbox.read(page, COMMAND_LINE))) == [("", "They see.")]


def test_a_process_that_dies_is_reported_and_restarted(sandbox: Sandbox, page: Path) -> None:
    list(sandbox.read(page, COMMAND_LINE))
    assert sandbox._process is not None
    sandbox._process.kill()
    sandbox._process.wait()
    assert "too much memory" in str(list(sandbox.read(page, COMMAND_LINE)))
    assert texts(list(sandbox.read(page, COMMAND_LINE))) == [("", "They see.")]


def test_members_read_before_the_process_dies_are_kept(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "pack.zip"
    file.write_bytes(samples.packed({"a.txt": "First.", "b.txt": "Second."}))
    answers = sandbox.read(file, COMMAND_LINE)
    assert texts([next(answers)]) == [("a.txt", "First.")]
    assert sandbox._process is not None
    # Drop everything else that the process wrote, as if it had died here.
    sandbox._lines = queue.SimpleQueue()
    sandbox._lines.put(b"")
    assert "too much memory" in str(list(answers))


def test_a_process_that_cannot_start_is_not_blamed_on_the_file(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(InputError, match="The process for parsers does not start"), Sandbox(COMMAND_LINE) as sandbox:
        list(sandbox.read(page, COMMAND_LINE))


def test_a_script_without_a_main_guard_reads_parsed_kinds(page: Path) -> None:
    """The child process does not run the script again, and imports the package from the current folder."""
    script = f"""
from pathlib import Path
from specrace.retrieval.documents import read_documents
print([document.title for document in read_documents([Path({str(page)!r})])])
"""
    root = Path(__file__).resolve().parents[2]
    for command in ([sys.executable, "-c", script], [sys.executable, "-"]):
        done = subprocess.run(command, input=script, cwd=root, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "['Owls']"
