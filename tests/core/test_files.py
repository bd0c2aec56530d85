"""Reading a user's files up to a size limit, whatever their kind and stated size, and writing files atomically.

`read_bytes` and `read_text` get the limit in bytes, and a hint: the part of the error message that says what to do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular, read_bytes, read_text, write_atomically

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    link.symlink_to(path)
    assert read_bytes(path, 8, "x") == path.read_bytes() and read_text(link, 8, "x") == "café"
    path.write_bytes(bytes(2001))
    with pytest.raises(InputError, match=r"a is larger than 0\.002 MB; give less"):
        read_bytes(path, 2000, "give less")


def test_the_stated_size_is_not_trusted() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system has no file that states a wrong size")
    assert status.stat().st_size == 0
    with pytest.raises(InputError, match="is larger than"):
        read_bytes(status, 20, "give another")


def test_anything_but_a_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (Path("/dev/zero"), "a device or a pipe"),
        (tmp_path / "pipe", "a device or a pipe"),
        (tmp_path, "a folder"),
        (tmp_path / "nothing", "No such file"),
        (tmp_path / "nul\0", "null"),
        (tmp_path / ("n" * 100_000), "too long"),
    ):
        with pytest.raises(InputError, match=f"cannot be read .*{words}.*; give another") as caught:
            read_bytes(path, 1000, "give another")
        assert len(str(caught.value)) < 400
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(Path("/dev/zero"), pipes=True)


KILLED_WRITE = """
import os, signal, sys
from pathlib import Path
from specrace.core.files import write_atomically
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b"the next one")
"""


def test_a_kill_during_a_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"the one before")
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITE, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL and path.read_bytes() == b"the one before"
    write_atomically(path, b"the next one")
    assert path.read_bytes() == b"the next one"


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\xff")
    with pytest.raises(InputError, match=r"not UTF-8 text .byte 1.; write it as UTF-8"):
        read_text(path, 9, "write it as UTF-8")


def test_a_long_value_loses_its_middle() -> None:
    assert shorten("x" * 200) == "x" * 200 and shorten(12) == "12"
    assert shorten("a" * 500 + "b" * 500, 20) == "a" * 10 + "…" + "b" * 10
    assert shorten("\udcff") == "?"
