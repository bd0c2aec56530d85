"""The helper process: its answers, and that no visitor's file blocks it or the server."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from specrace.core.errors import InputError
from specrace.ui import helper_process
from specrace.ui.helper_process import MAX_TASKS, HelperProcess
from specrace.ui.stream import recording_route
from specrace.views.recording_check import PAGE
from tests.ui.waiting import LONG_S, wait_until

FILE = min((Path(__file__).resolve().parents[2] / "assets" / "recordings").glob("*.jsonl"))


@pytest.fixture(scope="module")
def helper() -> Iterator[HelperProcess]:
    process = HelperProcess()
    yield process
    process.close()


def test_the_helper_runs_without_one_thread_per_processor(
    helper: HelperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stacks and buffers of such threads would count toward the helper's memory limit. The server keeps its threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    helper._connect()
    assert helper._process is not None
    # The helper connects before its program runs; until it runs, /proc shows no environment.
    environment = Path(f"/proc/{helper._process.pid}/environ")
    wait_until(environment.read_bytes)
    assert {b"OMP_NUM_THREADS=1", b"OPENBLAS_NUM_THREADS=1"} <= set(environment.read_bytes().split(b"\0"))
    assert "OMP_NUM_THREADS" not in os.environ and os.environ["OPENBLAS_NUM_THREADS"] == "7"


def process_of(helper: HelperProcess) -> Any:
    """Return the helper's running process."""
    (matching,) = [process for process in multiprocessing.active_children() if process is helper._process]
    return matching


def post(helper: HelperProcess, body: bytes, *, leaves: bool = False) -> tuple[int, bytes]:
    """Post a recording as a page does; with `leaves`, disconnect once it is sent. Returns the status and body."""
    sent: list[dict[str, Any]] = []
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not pending and not leaves:
            await asyncio.Event().wait()
        return pending.pop() if pending else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/gradio_api/recording"
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"name=race.jsonl"}
    asyncio.run(Starlette(routes=[recording_route(helper)])({**scope, "root_path": ""}, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_recordings_are_not_parsed_in_the_servers_process(
    helper: HelperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing there would hold the GIL, which the lanes need."""
    for name in ("specrace.ui.gallery.open_recording", "specrace.ui.gallery.reel_json", "json.loads"):
        monkeypatch.setattr(name, lambda *_: pytest.fail("the recording was parsed in the server's process"))
    status, body = post(helper, FILE.read_bytes())
    monkeypatch.undo()
    assert status == 200 and json.loads(body)["phase"] == "finished"
    assert process_of(helper).pid != os.getpid()


def test_a_bad_recording_gets_one_sentence_and_the_helper_keeps_running(helper: HelperProcess) -> None:
    assert post(helper, b"hello")[0] == 400
    before = process_of(helper).pid
    status, words = post(helper, b"\xff")
    assert (status, words) == (400, b"race.jsonl is not text; open a race that was saved here.")
    assert process_of(helper).pid == before


def test_a_recording_that_is_too_large_gets_one_sentence(helper: HelperProcess) -> None:
    status, words = post(helper, b" " * (PAGE.size + 1))
    assert status == 400 and b"larger than" in words


def test_work_that_takes_too_long_or_is_stopped_ends_the_helper(helper: HelperProcess) -> None:
    content = FILE.read_bytes()
    # Helpers that belong to other tests' pages.
    before = {process.pid for process in multiprocessing.active_children()}
    for limits, words in (({"limit_s": 0.0}, "more than 0 seconds"), ({"stop": lambda: True}, "Stopped")):
        with pytest.raises(InputError, match=words):
            # On any machine, this takes longer than the interval between two checks.
            helper.run("recording", "", b"\n" * 10_000_000 + content, **limits)
        assert {process.pid for process in multiprocessing.active_children() if process.name == "helper"} <= before
    assert helper.run("recording", "", content).startswith(b'{"kind":"reel"')


def test_work_that_runs_out_of_memory_gets_one_sentence(helper: HelperProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds when the system kills the helper, and when Python raises MemoryError."""

    def die() -> bool:
        process_of(helper).kill()
        return False

    with pytest.raises(InputError, match=r"race\.jsonl takes too much memory"):
        helper.run("recording", "race.jsonl", b"\n" * 10_000_000, stop=die)

    def exhaust(*_: Any) -> bytes:
        raise MemoryError

    monkeypatch.setitem(helper_process.TASKS, "recording", exhaust)
    kind, words = helper_process._answer("recording", "race.jsonl", b"", lambda _: None)
    assert (kind, words) == (b"refused", b"This takes too much memory to read; give a smaller file.")


def test_progress_comes_before_the_answer(helper: HelperProcess, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"prompt_ids": [1, 2], "output_ids": [3]}\n')
    request = {"path": str(tmp_path / "log.jsonl"), "lanes": ["trie"], "columns": ""}
    request |= {"tokenizer": "", "name": "", "decodes_ids": False}
    reports: list[bytes] = []
    answer = helper.run("log", "log.jsonl", json.dumps(request).encode(), on_progress=reports.append)
    assert [json.loads(report) for report in reports] == [{"progress": {"requests": 1, "share": 1.0}}]
    assert json.loads(answer)["scores"]["outputs"] == 1


def test_a_helper_that_died_is_restarted(helper: HelperProcess) -> None:
    helper.run("recording", "", FILE.read_bytes())
    process_of(helper).kill()
    process_of(helper).join()
    assert helper.run("recording", "", FILE.read_bytes())


def test_work_stops_when_its_page_disconnects(helper: HelperProcess) -> None:
    status, words = post(helper, b"\n" * 10_000_000 + FILE.read_bytes(), leaves=True)
    assert (status, words) == (400, b"Stopped.")


def test_waiting_tasks_are_bounded_and_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = HelperProcess()
    leave, entered, stopped = threading.Event(), threading.Event(), threading.Event()

    def exchange(*_: Any) -> tuple[bytes, bytes]:
        entered.set()
        leave.wait(LONG_S)
        return b"done", b"read"

    monkeypatch.setattr(helper, "_exchange", exchange)
    answers: list[str] = []

    def ask() -> None:
        try:
            answers.append(helper.run("recording", "", b"", stop=stopped.is_set).decode())
        except InputError as error:
            answers.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(MAX_TASKS + 2)]
    for thread in threads:
        thread.start()
    assert entered.wait(LONG_S)
    wait_until(lambda: len(answers) >= 2)
    assert set(answers) == {"The server is reading other visitors' files; try again in a minute."}
    stopped.set()
    wait_until(lambda: len(answers) >= MAX_TASKS + 1)
    assert answers[2:] == ["Stopped."] * (MAX_TASKS - 1)
    moment = time.monotonic()
    assert helper.worked_since(moment)
    leave.set()
    for thread in threads:
        thread.join(LONG_S)
    assert answers[-1] == "read"
    assert helper.worked_since(moment) and not helper.worked_since(time.monotonic())
