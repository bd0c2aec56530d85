"""Limits for each visitor, races that nobody waits for, and what is logged."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from gradio.context import LocalContext
from gradio.exceptions import InvalidPathError
from gradio.processing_utils import move_files_to_cache

from specrace.core.errors import InputError
from specrace.ui.server import visitors as visitors_module
from specrace.ui.server.http_server import PrivateFormatter
from specrace.ui.server.visitors import Rate, Visitors, visitor_key
from specrace.ui.visitor_limits import VisitorLimits
from tests.ui.served import LANES, Served, serving
from tests.ui.waiting import LONG_S

CALL = "/gradio_api/call/v2/race"
QUESTION = {"question": "Why?", "lanes": LANES, "max_new_tokens": 50}
SECRET = "the visitor's own words"


# The last bytes of visitors' addresses.
ADDRESSES = itertools.count(1)
LIMITS = ("--races-per-minute", "3", "--uploads-per-hour", "4", "--race-tokens", "50")


@pytest.fixture
def served() -> Iterator[Served]:
    """The app with strict limits, for a test that leaves a race or files behind."""
    with serving(*LIMITS) as app:
        yield app


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    """The app with strict limits, and room for one visitor in its queue, for tests whose races are all refused."""
    with serving(*LIMITS, "--queue", "1") as app:
        yield app


@pytest.fixture
def visitor(app: Served) -> Served:
    """The shared app as a new visitor sees it, from another address than the visitors before."""
    return new_visitor(app)


def new_visitor(app: Served) -> Served:
    """The app as a visitor with an address of its own sees it, where the system has such addresses."""
    return replace(app, source=f"127.0.1.{next(ADDRESSES)}") if sys.platform == "linux" else app


def test_a_rate_counts_the_last_period_of_each_visitor() -> None:
    now = 0.0
    # At most three events of a visitor in 60 seconds; `take` counts one event, or as many as it is told.
    rate = Rate(3, 60.0, clock=lambda: now)
    assert rate.take("a", 2) and not rate.take("a", 2) and rate.take("a") and rate.take("b", 3)
    now = 59.9
    assert not rate.take("a")
    now = 60.0
    assert rate.take("a", 3) and not rate.take("a")


def test_a_rate_forgets_visitors_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors_module, "MAX_VISITORS", 2)
    rate = Rate(1, 60.0, clock=lambda: 0.0)
    assert all(rate.take(name) for name in "abc") and not rate.take("c") and rate.take("a")


def test_a_visitor_is_an_ipv4_address_or_an_ipv6_network() -> None:
    assert visitor_key("2001:db8::1") == visitor_key("2001:db8::2") != visitor_key("2001:db8:0:1::1")
    assert visitor_key("192.0.2.1") != visitor_key("192.0.2.2")
    assert visitor_key(None) == "" and visitor_key("testclient") == "testclient"


def test_races_are_counted_across_a_visitors_visits(served: Served) -> None:
    for number in range(3):
        assert "key" in served.race(f"session-{number}", **{"New tokens": 50})
    assert "started 3 races within a minute" in served.race("another", **{"New tokens": 50})
    assert len(served.files()) == 0


def test_the_servers_limit_on_answer_length_is_enforced(visitor: Served) -> None:
    assert "51; this server allows at most 50" in visitor.race(**{"New tokens": 51})
    config = visitor.ask("GET", "/config").json()
    field = next(
        component["props"] for component in config["components"] if component["props"].get("label") == "New tokens"
    )
    assert field["value"] == 50 and field["info"].endswith("1 to 50.")


def test_uploads_are_rate_limited(visitor: Served) -> None:
    former_names = visitor.files()
    assert visitor.upload({"a.md": b"A.", "b.md": b"B.", "c.md": b"C."}).status == 200
    answer = visitor.upload({"d.md": b"D.", "e.md": b"E."})
    assert answer.status == 429 and "More than 4 files" in answer.text
    assert visitor.files() == sorted([*former_names, "a.md", "b.md", "c.md"])


def test_a_race_on_uploads_leaves_no_other_files(served: Served) -> None:
    paths = served.upload({"owls.md": b"Owls hear."}).json()
    race = served.race(files=paths, **{"New tokens": 50})
    with served.watching(race["key"]):
        assert served.workbench.begun.wait(LONG_S)
    assert [document.name for document in served.workbench.documents] == ["owls.md"]
    assert served.files() == ["owls.md"]


# "{}" stands for the folder of uploads.
@pytest.mark.parametrize("path", ["/etc/passwd", "https://192.0.2.1/a.md", "{}/../a.md"])
def test_a_race_reads_only_uploaded_files(visitor: Served, path: str) -> None:
    file = path.format(visitor.folder)
    refusal = visitor.race(files=[file], **{"New tokens": 50})
    assert refusal == "A file must be uploaded before it is used."
    assert not visitor.workbench.begun.is_set()
    assert visitor.ask("GET", f"/gradio_api/file={file}").status in (403, 404)


def test_gradio_also_checks_the_paths_of_files(app: Served) -> None:
    """Our own check comes first. Gradio's runs only if the page counts as launched."""
    assert app.app is not None
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    before = LocalContext.blocks.set(app.app.state.page)
    try:
        with pytest.raises(InvalidPathError, match="/etc/passwd"):
            move_files_to_cache([file], gr.Files(), check_in_upload_folder=True)
    finally:
        LocalContext.blocks.reset(before)


def test_a_visitor_cannot_use_another_visitors_file(visitor: Served) -> None:
    """Knowing the file's path does not help."""
    other = new_visitor(visitor)
    (path,) = other.upload({"owls.md": b"Owls hear."}).json()
    assert other.ask("GET", f"/gradio_api/file={path}").status == 404
    race = visitor.race(files=[path], **{"New tokens": 50})
    with visitor.watching(race["key"]) as answer:
        assert b"A file must be uploaded before it is used." in answer.read()
    assert not visitor.workbench.begun.is_set()


def test_a_race_whose_result_nobody_reads_is_stopped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock does not advance until the race has started, so that the race cannot time out earlier on a busy machine.
    ticks = itertools.count(1)
    clock = SimpleNamespace(monotonic=lambda: 1000.0 * next(ticks) if served.workbench.begun.is_set() else 0.0)
    monkeypatch.setattr(visitors_module, "time", clock)
    served.ask("POST", CALL, QUESTION)
    assert served.workbench.begun.wait(LONG_S) and served.workbench.ended.wait(LONG_S)


def test_a_race_stops_when_its_reader_disconnects(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors_module, "RETURN_LIMIT_S", 0.0)
    # Poll often, so that the reader is noticed however soon it disconnects.
    monkeypatch.setattr(visitors_module, "POLL_PERIOD_S", 0.001)
    event = served.ask("POST", CALL, QUESTION).json()["event_id"]
    with served.connect_raw() as connection:
        connection.sendall(f"GET {CALL}/{event} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert connection.recv(1) and served.workbench.begun.wait(LONG_S) and not served.workbench.ended.is_set()
    assert served.workbench.ended.wait(LONG_S)


def test_a_result_reaches_a_reader_that_connects_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    visitors = Visitors(VisitorLimits())

    async def read() -> str:
        result = asyncio.ensure_future(visitors.run_while_wanted("a", asyncio.sleep(0.02, "done")))
        with visitors.reading("a"):
            return await result

    monkeypatch.setattr(visitors_module, "CLAIM_LIMIT_S", LONG_S)
    assert asyncio.run(read()) == "done"
    monkeypatch.setattr(visitors_module, "CLAIM_LIMIT_S", 0.0)
    monkeypatch.setattr(visitors_module, "POLL_PERIOD_S", 0.0)
    with pytest.raises(InputError, match="Nobody waits"):
        asyncio.run(visitors.run_while_wanted("b", asyncio.sleep(LONG_S)))


def test_visitors_waiting_for_the_model_occupy_no_slot_in_gradios_queue(app: Served) -> None:
    config = app.ask("GET", "/config").json()
    status = next(
        component["id"] for component in config["components"] if component["props"].get("elem_id") == "status-host"
    )
    status_loads = [
        dependency
        for dependency in config["dependencies"]
        if status in dependency["outputs"] and any(name == "load" for _, name in dependency["targets"])
    ]
    assert status_loads and not any(dependency["queue"] for dependency in status_loads)
    for number in range(3):
        body = {"data": [], "fn_index": status_loads[0]["id"], "session_hash": f"session-{number}"}
        assert "state" in app.ask("POST", "/gradio_api/run/predict", body).json()["data"][0]


def test_visitors_input_is_not_logged(app: Served, capfd: pytest.CaptureFixture[str]) -> None:
    for label in ("Lanes", "New tokens", "Verifier", "Model", "Seed", "Draft tokens"):
        # With a valid number of new tokens, only the secret is refused, and no visitor's limit on races is reached.
        refusal = new_visitor(app).race(**{"New tokens": 50, label: SECRET})
        assert isinstance(refusal, str) and len(refusal) < 200, label
    logged = capfd.readouterr()
    assert SECRET not in logged.out + logged.err


def test_a_failure_is_logged_without_its_message(
    app: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No failure logs visitors' text, whether the body is hostile or Gradio's code fails."""

    def fail(**_: Any) -> None:
        raise OverflowError(SECRET)

    handler = logging.StreamHandler()
    handler.setFormatter(PrivateFormatter())
    logging.getLogger().addHandler(handler)
    try:
        for path, body in (
            ("queue/join", {"data": SECRET, "fn_index": 0, "session_hash": SECRET}),
            ("queue/join", {"data": [SECRET], "fn_index": 99999, "session_hash": SECRET}),
            ("component_server", {"data": 1, "component_id": SECRET, "session_hash": SECRET, "fn_name": SECRET}),
            (f"call/{SECRET.replace(' ', '%20')}", {"data": [SECRET]}),
            ("call/race", {"data": [SECRET] * 3}),
            ("call/v2/race", {"question": SECRET, "lanes": [SECRET]}),
            ("run/predict", {"data": [{SECRET: SECRET}], "fn_index": 0, "session_hash": "a"}),
        ):
            app.ask("POST", f"/gradio_api/{path}", body)
        monkeypatch.setattr("gradio.route_utils.get_fn", fail)
        assert app.ask("POST", "/gradio_api/run/predict", {"data": [], "fn_index": 0}).status == 500
    finally:
        logging.getLogger().removeHandler(handler)
    logged = capfd.readouterr()
    assert SECRET not in logged.out + logged.err
    assert "OverflowError" in logged.err


def test_a_logged_failure_names_its_exception_types_and_location() -> None:
    try:
        try:
            raise ValueError(SECRET)
        except ValueError as error:
            raise KeyError(SECRET) from error
    except KeyError as error:
        trace = PrivateFormatter().formatException((type(error), error, error.__traceback__))
    assert SECRET not in trace
    assert trace.index("ValueError") < trace.index("KeyError") and "test_visitors.py" in trace
