"""Forks that run the tests of one collecting process: all tests run once, whatever a test does to its process.

A real pytest collects and runs the tests that each test here writes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSES = "def test_passes(): pass\n"
# Waits until the other file's test runs, too. The patience is far above what a busy machine needs.
MEETS = """
import time
from pathlib import Path
def test_meets(tmp_path_factory):
    folder = Path(__file__).parent
    (folder / "{own}.met").touch()
    deadline = time.monotonic() + 300
    while not (folder / "{other}.met").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


def heed_interrupts() -> None:
    """Stop ignoring interrupts: a shell makes the programs in its background ignore them, and Python inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_pytest(folder: Path, files: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Run the tests of these files with pytest; return its exit code and its output."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    # Leave out the settings and the plugins of this project's tests.
    settings = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-p", "tests.workers"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", *settings, *arguments, str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, preexec_fn=heed_interrupts
    )
    return done.returncode, done.stdout + done.stderr


def test_two_processes_run_two_files_at_the_same_time(tmp_path: Path) -> None:
    files = {"a": MEETS.format(own="a", other="b"), "b": MEETS.format(own="b", other="a")}
    code, printed = run_pytest(tmp_path, files, "--workers", "2")
    assert code == 0 and "2 passed" in printed


def test_the_tests_of_a_file_share_a_process_and_its_fixtures(tmp_path: Path) -> None:
    text = """
import os
import pytest
@pytest.fixture(scope="module")
def owner():
    yield os.getpid()
    with open(__file__ + ".ends", "a") as ends:
        ends.write("end ")
@pytest.mark.parametrize("number", range(3))
def test_owner(owner, number):
    assert owner == os.getpid() != COLLECTED_BY
COLLECTED_BY = os.getpid()
"""
    code, printed = run_pytest(tmp_path, dict.fromkeys("abc", text), "--workers", "2")
    assert code == 0 and "9 passed" in printed
    assert [(tmp_path / f"test_{name}.py.ends").read_text() for name in "abc"] == ["end "] * 3


def test_each_process_has_its_own_folder_and_output(tmp_path: Path) -> None:
    text = """
def test_fails(tmp_path_factory, capfd):
    print("said by", __name__)
    assert capfd.readouterr().out.split() == ["said", "by", __name__]
    folder = tmp_path_factory.getbasetemp() / "of this process"
    folder.mkdir()
    print("shown of", __name__)
    assert not folder.exists()
"""
    code, printed = run_pytest(tmp_path, {"a": text, "b": text}, "--workers", "2")
    assert code == 1 and "2 failed" in printed
    assert printed.count("shown of test_a\n") == printed.count("shown of test_b\n") == 1
    # A wide terminal repeats the assertion in the summary, without the mark of a traceback.
    assert len(re.findall(r"^E .*assert not True", printed, flags=re.MULTILINE)) == 2


def test_a_test_that_ends_its_process_fails_and_the_others_run(tmp_path: Path) -> None:
    ends = f"import os\n{PASSES}def test_ends(): os._exit(3)\ndef test_after(): pass\n"
    code, printed = run_pytest(tmp_path, {"a": ends, "b": PASSES}, "--workers", "1")
    # Passed are the tests before and after the one that ends its process, and that of the other file.
    assert code == 1 and "1 failed, 3 passed" in printed
    assert "_ test_ends _" in printed and "the process ended with code 3 during or after this test" in printed


def test_an_error_of_pytest_in_a_process_is_no_success(tmp_path: Path) -> None:
    text = f"import pytest\ndef test_leaves(): pytest.exit('enough')\n{PASSES}"
    code, printed = run_pytest(tmp_path, {"a": text}, "--workers", "1")
    assert code == 1 and "1 failed, 1 passed" in printed


def test_the_first_failure_ends_the_run_if_asked(tmp_path: Path) -> None:
    files = {"a": "def test_fails(): assert 0\n", "b": PASSES, "c": PASSES}
    code, printed = run_pytest(tmp_path, files, "--workers", "1", "-x")
    assert code == 1 and "1 failed" in printed and "passed" not in printed


def test_collection_errors_are_reported(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, {"a": "import nothing_like_this\n", "b": PASSES}, "--workers", "2")
    assert code == 2 and "No module named 'nothing_like_this'" in printed


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    text = """
import os, signal, time
def test_interrupts():
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(300)
"""
    code, printed = run_pytest(tmp_path, {"a": text}, "--workers", "1")
    assert code == 2 and "KeyboardInterrupt" in printed
