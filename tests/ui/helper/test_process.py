"""The helper process: its answers, and that no visitor's file blocks it or the server."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from specrace.core.errors import InputError
from specrace.ui.helper import process as helper_process
from specrace.ui.helper.pool import HelperPool
from specrace.ui.helper.process import HelperProcess
from specrace.ui.helper.recording_routes import recording_route
from specrace.ui.server.visitors import Visitors
from specrace.views.recording_check import PAGE_LIMITS
from tests.ui.waiting import wait_until

FILE = min((Path(__file__).resolve().parents[3] / "assets" / "recordings").glob("*.jsonl"))


@pytest.fixture(scope="module")
def helper() -> Iterator[HelperPool]:
    pool = HelperPool()
    yield pool
    pool.close()


def test_the_helper_runs_without_one_thread_per_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks and buffers of such threads would count toward the helper's memory limit. The server keeps its threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    helper = HelperProcess()
    helper._connect()
    assert helper._process is not None
    # The helper connects before its program runs; until it runs, /proc shows no environment.
    environment = Path(f"/proc/{helper._process.pid}/environ")
    wait_until(environment.read_bytes)
    assert {b"OMP_NUM_THREADS=1", b"OPENBLAS_NUM_THREADS=1"} <= set(environment.read_bytes().split(b"\0"))
    assert "OMP_NUM_THREADS" not in os.environ and os.environ["OPENBLAS_NUM_THREADS"] == "7"
    helper.close()


def process_of(helper: HelperPool) -> Any:
    """Return the helper's only process."""
    (process,) = [*(turn.process for turn in helper._running), *helper._idle]
    (matching,) = [child for child in multiprocessing.active_children() if child is process._process]
    return matching


def post(helper: HelperPool, body: bytes, *, leaves: bool = False) -> tuple[int, bytes]:
    """Post a recording as a page does; if `leaves`, disconnect once it is sent. Returns the status and body."""
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
    asyncio.run(Starlette(routes=[recording_route(helper, Visitors())])({**scope, "root_path": ""}, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_recordings_are_not_parsed_in_the_servers_process(helper: HelperPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing there would hold the GIL, which the lanes need."""
    for name in ("specrace.ui.helper.gallery.open_recording", "specrace.ui.helper.gallery.reel_json", "json.loads"):
        monkeypatch.setattr(name, lambda *_: pytest.fail("the recording was parsed in the server's process"))
    status, body = post(helper, FILE.read_bytes())
    monkeypatch.undo()
    assert status == 200 and json.loads(body)["phase"] == "finished"
    assert process_of(helper).pid != os.getpid()


def test_a_bad_recording_gets_one_sentence_and_the_helper_keeps_running(helper: HelperPool) -> None:
    assert post(helper, b"hello")[0] == 400
    before = process_of(helper).pid
    status, words = post(helper, b"\xff")
    assert (status, words) == (400, b"race.jsonl is not text; open a race that was saved here.")
    assert process_of(helper).pid == before


def test_a_recording_that_is_too_large_gets_one_sentence(helper: HelperPool) -> None:
    status, words = post(helper, b" " * (PAGE_LIMITS.size + 1))
    assert status == 400 and b"larger than" in words


def test_work_that_takes_too_long_or_is_stopped_ends_the_helper(helper: HelperPool) -> None:
    content = FILE.read_bytes()
    # Servers of other tests may have helpers, too.
    before = {process.pid for process in multiprocessing.active_children()}
    for limits, words in (({"limit_s": 0.0}, "more than 0 seconds"), ({"stop": lambda: True}, "Stopped")):
        with pytest.raises(InputError, match=words):
            # On any machine, this content takes longer to read than the time between two checks of the limits.
            helper.run("recording", "", b"\n" * 10_000_000 + content, **limits)
        assert {process.pid for process in multiprocessing.active_children() if process.name == "helper"} <= before
    assert json.loads(helper.run("recording", "", content))["phase"] == "finished"


def test_work_that_runs_out_of_memory_gets_one_sentence(helper: HelperPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds when the system kills the helper, and when Python raises MemoryError."""

    def kill_helper() -> bool:
        process_of(helper).kill()
        return False

    with pytest.raises(InputError, match=r"race\.jsonl takes too much memory"):
        helper.run("recording", "race.jsonl", b"\n" * 10_000_000, stop=kill_helper)

    def run_out_of_memory(*_: Any) -> bytes:
        raise MemoryError

    monkeypatch.setitem(helper_process.TASKS, "recording", run_out_of_memory)
    kind, words = helper_process._answer("recording", "race.jsonl", b"", lambda _: None)
    assert (kind, words) == (b"refused", b"This takes too much memory to read; give a smaller file.")


def test_progress_comes_before_the_answer(helper: HelperPool, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"prompt_ids": [1, 2], "output_ids": [3]}\n')
    request = {"path": str(tmp_path / "log.jsonl"), "lanes": ["trie"], "columns": ""}
    request |= {"tokenizer": "", "name": "", "decodes_ids": False}
    reports: list[bytes] = []
    answer = helper.run("log", "log.jsonl", json.dumps(request).encode(), on_progress=reports.append)
    assert [json.loads(report) for report in reports] == [{"progress": {"requests": 1, "share": 1.0}}]
    assert json.loads(answer)["scores"]["outputs"] == 1


def test_a_helper_that_died_is_restarted(helper: HelperPool) -> None:
    helper.run("recording", "", FILE.read_bytes())
    process_of(helper).kill()
    process_of(helper).join()
    assert helper.run("recording", "", FILE.read_bytes())


def test_work_stops_when_its_page_disconnects(helper: HelperPool) -> None:
    status, words = post(helper, b"\n" * 10_000_000 + FILE.read_bytes(), leaves=True)
    assert (status, words) == (400, b"Stopped.")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the process in /proc")
def test_a_parser_ends_with_its_helper(tmp_path: Path) -> None:
    """The helper reads documents in a child process of its own."""
    (tmp_path / "page.html").write_text("<p>Owls.")
    helper, parsers = HelperProcess(), list[int]()

    def stop() -> bool:
        assert helper._process is not None
        pid = helper._process.pid
        parsers.extend(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
        for parser in parsers:
            os.kill(parser, signal.SIGSTOP)
        return bool(parsers)

    with pytest.raises(InputError, match="Stopped"):
        helper.run("uploads", "", json.dumps([str(tmp_path / "page.html")]).encode(), stop=stop)
    wait_until(lambda: not any(Path(f"/proc/{parser}").exists() for parser in parsers))
