"""Machine faults: a killed server, a full disk, a clock set back, a device out of memory."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.cli import app as app_command
from specrace.core.errors import DeviceError
from specrace.core.events import Event
from specrace.model.weights.source import ModelChoice
from specrace.ui.helper.process import OUR_FAULT
from specrace.ui.loading import loader
from specrace.ui.page import gradio_page
from specrace.ui.races.job import NO_MEMORY
from specrace.ui.races.load_state import TOO_LARGE
from specrace.ui.races.worker import Worker
from specrace.ui.server import folder as folder_module
from specrace.ui.server.folder import PREFIX, upload_folder
from specrace.workbench import Workbench
from tests import processes
from tests.ui.races.test_stream import ready_worker
from tests.ui.served import Served, read_until, serving
from tests.ui.waiting import LONG_S


def start(folder: Path) -> tuple[processes.Process, Served]:
    """Start a server in a process of its own, with `folder` for its temporary files."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    environment.pop("GRADIO_TEMP_DIR", None)
    process = processes.start(["-m", "tests.ui.served"], env=environment)
    return process, Served(int(process.stdout.readline().rpartition(":")[2]), folder)


def test_uploads_left_by_a_killed_server_are_removed_by_the_next(tmp_path: Path) -> None:
    process, served = start(tmp_path)
    try:
        served.upload({"owls.md": b"Owls hear."})
        with served.watching(served.race()["key"]) as frames:
            read_until(frames, b"head")
            process.kill()
            process.wait()
        assert served.files() == ["owls.md"]
        # A folder of the last minute would be kept, because its server may not have locked it yet.
        for folder in tmp_path.glob(f"{PREFIX}*"):
            os.utime(folder, (0, 0))
        process, served = start(tmp_path)
        assert served.files() == [] and "key" in served.race()
    finally:
        process.kill()
        process.wait()


def test_folders_that_are_locked_recent_or_not_ours_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = ("locked", "recent", "stale")
    locked, recent, stale = (tmp_path / f"{PREFIX}{name}" for name in names)
    for folder in (locked, recent, stale, tmp_path / "kept"):
        folder.mkdir()
        (folder / "file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "kept")
    # These two were last changed in 1970.
    for folder in (locked, stale):
        os.utime(folder, (0, 0))
    handle = os.open(locked, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with upload_folder() as new_folder:
            assert Path(new_folder).is_dir() and not stale.exists()
            # Recent folders may now be removed too, but not the new folder, because it is locked.
            monkeypatch.setattr(folder_module, "MIN_AGE_S", -1.0)
            os.utime(recent)
            with upload_folder():
                assert Path(new_folder).is_dir() and locked.exists() and not recent.exists()
        assert (tmp_path / "kept" / "file").exists() and not Path(new_folder).exists()
    finally:
        os.close(handle)


def test_a_full_disk_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/a/path")

    with serving() as app:
        with monkeypatch.context() as patch:
            patch.setattr(gradio_page.shutil, "copyfileobj", fail)
            answer = app.upload({"a.md": b"A."})
        assert answer.status == 507 and answer.text == "The server has no room for files; try again later."
        assert app.upload({"a.md": b"A."}).status == 200 and "key" in app.race()


def test_setting_the_clock_back_affects_no_race_and_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock is a day earlier than the last."""
    now = time.time()

    def earlier_time() -> float:
        nonlocal now
        now -= 86_400
        return now

    with serving("--races-per-minute", "3", "--uploads-per-hour", "2") as app:
        monkeypatch.setattr(time, "time", earlier_time)
        numbers = []
        for _ in range(3):
            race = app.race()
            numbers.append(race["race"])
            assert app.worker is not None and race["server"] == app.worker.server_id != ready_worker().server_id
            with app.watching(race["key"]) as frames:
                read_until(frames, b"step")
        assert numbers == sorted(numbers)
        assert "within a minute" in app.race()
        assert app.upload({"a.md": b"A.", "b.md": b"B."}).status == 200 and app.upload({"c.md": b"C."}).status == 429
        assert app.ask("GET", "/healthz").json() == {"status": "ready"}


class OutOfMemoryError(RuntimeError):
    """An error with the name of torch's, by which the server recognises it."""


@pytest.mark.parametrize("error", [OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_a_race_that_runs_out_of_memory_ends_with_a_sentence_and_the_next_one_runs(error: Exception) -> None:
    def run(*_: Any) -> Iterator[Event]:
        raise error
        yield  # makes this function a generator

    worker = ready_worker()
    job = worker.queue.submit("a", run)
    assert job.wait(LONG_S) and job.error == NO_MEMORY
    # The worker still takes the next race.
    assert worker.queue.submit("a", run).wait(LONG_S)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutOfMemoryError("CUDA out of memory"), TOO_LARGE),
        (MemoryError(), TOO_LARGE),
        (RuntimeError("/a/path"), OUR_FAULT),
    ],
)
def test_a_server_that_cannot_load_its_model_says_why(error: Exception, words: str) -> None:
    def load(_: Any) -> Any:
        raise error

    worker = Worker(load)
    worker.start()
    job = worker.queue.submit("a", lambda *_: iter(()))
    assert job.wait(LONG_S) and job.error == worker.loading.status == words and worker.state == "failed"


def test_without_the_requested_device_the_server_races_on_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    target = SimpleNamespace(describe=lambda: {"model": "tiny", "dtype": "float32", "device": "cpu"})
    opened: list[str] = []

    def open_workbench(choice: ModelChoice, *, device: str | None = None, **_: Any) -> Any:
        opened.append(device or choice.device)
        if opened[-1] != "cpu":
            raise DeviceError("No CUDA device was found; use --device cpu.")
        return SimpleNamespace(target=target, num_passages=3)

    monkeypatch.setattr(Workbench, "open", open_workbench)
    monkeypatch.setattr("specrace.model.machine.memory.use_processors", lambda *_, **__: None)
    reports: list[str] = []
    config = app_command.read_config(app_command.parse(["--device", "cuda", "--model", "tiny", "--no-fetch"]))
    loader(config)(reports.append)
    assert opened == ["cuda", "cpu"]
    assert reports[-1].startswith("Ready: tiny, float32, cpu, 3 passages. No CUDA device was found")
