"""Gradio internals that the page relies on: a Gradio release that changes them fails here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import gradio as gr
import pytest
from gradio.state_holder import StateHolder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from specrace.ui.helper.gallery import Gallery
from specrace.ui.page.audience import Audience
from specrace.ui.page.gradio_private import MAX_SESSIONS, QUEUE_PERIOD_S, EarlyHead, limit_overhead
from specrace.ui.page.page import build_replay, mount_options
from specrace.ui.server.guard import Hosts
from specrace.ui.server.scripts import STATIC, VOTER
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import Visitors

PAGE = "<!doctype html><html><head><script src=theirs></script></head><body>é <head></body></html>"
EARLY = '<script type="module" src="early.js"></script>'


def client() -> TestClient:
    """A client of an app with the middleware `EarlyHead`, whose responses are whole or in two chunks."""

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(PAGE, status_code=200 if request.url.path == "/" else 418, headers={"x-kept": "yes"})

    async def pieces(_: Request) -> StreamingResponse:
        return StreamingResponse(iter(["<head>", "rest"]), media_type="text/html")

    routes = [Route("/", page, methods=["GET", "POST"]), Route("/other", page), Route("/pieces", pieces)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(EarlyHead, html=EARLY)]))


def test_the_html_is_inserted_first_in_the_head_and_the_length_is_updated() -> None:
    answer = client().get("/?q=1")
    # The middleware also inserts tags that describe the page where it is linked.
    without_description = re.sub(r'<meta (?:property|name)="(?:og|twitter):[^>]*>', "", answer.text)
    assert without_description == PAGE.replace("<head>", f"<head>{EARLY}", 1)
    assert int(answer.headers["content-length"]) == len(answer.content) == len(answer.text.encode())
    assert answer.headers["x-kept"] == "yes"


def test_other_responses_are_left_unchanged() -> None:
    assert client().get("/other").text == client().post("/").text == PAGE
    assert client().get("/other").status_code == 418
    assert client().get("/pieces").text == "<head>rest"


@pytest.fixture(scope="module")
def served() -> Iterator[TestClient]:
    """A client of a mounted page."""
    page, app = build_replay(Gallery(), Visitors(), 0), Starlette()
    gr.mount_gradio_app(app, page, "/", **mount_options(page, Visitors(), Audience(Hosts()), Telemetry()))
    with TestClient(app) as client:
        yield client


def test_our_modules_run_before_gradios(served: TestClient) -> None:
    """Gradio's scripts come after ours. They are modules too, so both run in the order of the HTML."""
    tags = re.findall(r"<script\b[^>]*>", served.get("/").text)
    assert re.fullmatch(r'<script type="module" src="scripts/\w+/main.js">', tags[0])
    gradio_tags = [tag for tag in tags[1:] if "src=" in tag]
    assert gradio_tags and all('type="module"' in tag and "async" not in tag for tag in gradio_tags)


def test_every_script_is_preloaded_and_cached(served: TestClient) -> None:
    paths = re.findall(r'<link rel="modulepreload" href="(scripts/[^"]*)">', served.get("/").text)
    folder = "/".join(paths[0].split("/")[:2])
    names = [path.removeprefix(f"{folder}/") for path in paths]
    assert sorted(names) == sorted({path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js")} - {VOTER})
    for name in names:
        answer = served.get(f"/{folder}/{name}")
        assert answer.content == (STATIC / name).read_bytes()
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "immutable" in answer.headers["cache-control"]
    assert served.get(f"/{folder}/page.css").status_code == 404
    assert served.get(f"/{folder}/..%2fserve.py").status_code == 404


def test_the_queue_polls_at_the_period_that_we_set() -> None:
    with gr.Blocks() as page:
        pass
    page.queue()
    assert 0 < page._queue.sleep_when_free < page._queue.progress_update_sleep_when_free < QUEUE_PERIOD_S
    assert "asyncio.sleep(self.sleep_when_free)" in inspect.getsource(type(page._queue))
    limit_overhead(page)
    for limited in (page, build_replay(Gallery(), Visitors(), 0)):
        queue = limited._queue
        assert queue.sleep_when_free == queue.progress_update_sleep_when_free == QUEUE_PERIOD_S


def test_the_number_of_remembered_sessions_is_bounded() -> None:
    with gr.Blocks() as page:
        gr.Textbox()
    limit_overhead(page)
    holder = StateHolder()
    holder.set_blocks(page)
    for number in range(MAX_SESSIONS + 5):
        assert holder[str(number)].config_values
    assert len(holder.session_data) == len(holder.time_last_used) == MAX_SESSIONS


def test_gradios_scripts_contain_the_timer_that_we_stop() -> None:
    # The regular expression by which our script finds Gradio's timer.
    declaration = re.search(
        r"^const LOADING_TIMER = /(.*)/;$", (STATIC / "lib" / "gradio.js").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert declaration
    timer = re.compile(declaration[1].replace(r"\/", "/"))
    assets = Path(gr.__file__).parent / "templates" / "frontend" / "assets"
    assert any(timer.search(path.read_text(encoding="utf-8")) for path in assets.glob("*.js"))
