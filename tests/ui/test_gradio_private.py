"""The script that runs before Gradio's."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from specrace.ui.gradio_private import EarlyHead

PAGE = "<!doctype html><html><head><script src=theirs></script></head><body>é <head></body></html>"
EARLY = '<script type="module" src="early.js"></script>'


def client() -> TestClient:
    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(PAGE, status_code=200 if request.url.path == "/" else 418, headers={"x-kept": "yes"})

    async def pieces(_: Request) -> StreamingResponse:
        return StreamingResponse(iter(["<head>", "rest"]), media_type="text/html")

    routes = [Route("/", page, methods=["GET", "POST"]), Route("/other", page), Route("/pieces", pieces)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(EarlyHead, html=EARLY)]))


def test_the_page_gets_it_first_and_says_how_long_it_is() -> None:
    answer = client().get("/?q=1")
    assert answer.text == PAGE.replace("<head>", f"<head>{EARLY}", 1)
    assert int(answer.headers["content-length"]) == len(answer.content) == len(answer.text.encode())
    assert answer.headers["x-kept"] == "yes"


def test_all_else_passes_as_it_is() -> None:
    assert client().get("/other").text == client().post("/").text == PAGE
    assert client().get("/other").status_code == 418
    assert client().get("/pieces").text == "<head>rest"
