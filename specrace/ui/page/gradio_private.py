"""The server's uses of Gradio's private parts: the queue's polling, the page's HTML, sign-ins and MCP tools.

The page's scripts use Gradio's DOM only through static/lib/gradio.js.
"""

from __future__ import annotations

import copy
import hmac
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gradio as gr
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from specrace.core.errors import shorten
from specrace.ui.server.guard import API, hold_page
from specrace.ui.server.proxy_path import describe_link
from specrace.ui.server.visitors import LOGINS_PER_MINUTE, Visitors

# How often Gradio looks for events in its queue.
QUEUE_PERIOD_S = 0.04
# By default Gradio keeps 10,000 sessions, each with a copy of the page's configuration (0.2 MB). If a dropped session
# is used again, Gradio creates a new one.
MAX_SESSIONS = 100
SIGN_OUT_PAGE = (
    '<!doctype html><html lang="en"><title>specrace</title><form method="post"><button>Sign out</button></form></html>'
)
SIGN_OUT_POLICY = "default-src 'none'; form-action 'self'; frame-ancestors 'none'"
# Paths that the page requests before the visitor has signed in.
OPEN_PATHS = tuple(f"{API}/{name}" for name in ("login_check", "app_id", "startup-events", "user"))


def limit_overhead(page: gr.Blocks) -> None:
    """Make Gradio poll its queue less often and keep fewer sessions.

    By default it polls for events a thousand times a second and for progress a hundred times, which slows down a race
    in the same process. Every API call leaves a session behind.
    """
    page._queue.sleep_when_free = QUEUE_PERIOD_S
    page._queue.progress_update_sleep_when_free = QUEUE_PERIOD_S
    page.state_session_capacity = MAX_SESSIONS


def serve_tools(page: gr.Blocks, types: Mapping[str, Any]) -> None:
    """Make a page's MCP tools call its endpoints in this process and answer in JSON.

    `types`: parameter -> its JSON schema, where Gradio's own does not fit. By default Gradio calls its own server over
    HTTP: it would upload any file of this machine that a caller names, and all callers would have this machine's
    address. MCP's resources and prompts always use HTTP, so they are refused.
    """
    server: Any = page.mcp_server_obj
    if server is None:
        raise RuntimeError(page.mcp_error)
    find_queued = server.get_block_fn_from_endpoint_name

    def find_unqueued(name: str) -> Any:
        # Gradio calls a function in this process only if the function does not use the queue.
        function = copy.copy(find_queued(name))
        function.queue = False
        return function

    prepare_call = server._prepare_tool_call_args

    def prepare(name: str, arguments: dict[str, Any]) -> Any:
        try:
            return prepare_call(name, arguments)
        except TypeError as error:
            # Only the first sentence of Gradio's message: the second sends the caller to the page.
            raise ValueError(
                f"{shorten(str(error).partition('. ')[0])}; tools/list has each tool's parameters."
            ) from None

    def refuse() -> None:
        raise ValueError("This server has tools only.")

    def as_text(data: Any, _: str) -> list[Any]:
        return [server.types.TextContent(type="text", text=json.dumps(value, ensure_ascii=False)) for value in data]

    server.get_block_fn_from_endpoint_name = find_unqueued
    server._prepare_tool_call_args = prepare
    server._get_or_create_client = refuse
    server.postprocess_output_data = as_text
    for endpoint in server.api_info["named_endpoints"].values():
        for parameter in endpoint["parameters"]:
            schema = types.get(parameter["parameter_name"], parameter["type"])
            # A tool's help is in its description instead.
            parameter["type"] = {name: value for name, value in schema.items() if name != "additional_description"}


def is_pending(app: Any, event: str) -> bool:
    """Whether the answer to an event of Gradio's queue has not been read yet; `event` is the event's id."""
    return any(event in ids for ids in app.get_blocks()._queue.pending_event_ids_session.values())


class EarlyHead:
    """ASGI middleware that inserts HTML at the start of the page's head, and a description for sites that link to it.

    Script modules run in the order of the HTML, and Gradio's option `head` would put ours after Gradio's own.
    """

    def __init__(self, app: ASGIApp, html: str, root_path: str = "") -> None:
        self._app, self._root_path = app, root_path
        self._head = f"<head>{html}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_page = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
        await self._app(scope, receive, hold_page(send, partial(self._insert, scope)) if is_page else send)

    def _insert(self, scope: Scope, headers: MutableHeaders, html: bytes) -> bytes:
        html = describe_link(html.replace(b"<head>", self._head, 1), scope, self._root_path)
        headers["content-length"] = str(len(html))
        return html


def password_check(auth: str | None) -> Callable[[str, str], bool] | None:
    """The function with which Gradio checks a sign-in; None if `auth` (USER:PASSWORD) is None."""
    if auth is None:
        return None

    def check(user: str, password: str) -> bool:
        # Both are compared as one string, so that the time does not reveal whether the user's name was right.
        return hmac.compare_digest(f"{user}:{password}".encode(), auth.encode())

    return check


class SignedIn:
    """ASGI middleware: with --auth, only signed-in users may use the API. Gradio itself guards only some routes."""

    def __init__(self, app: ASGIApp, visitors: Visitors) -> None:
        self._app, self._visitors = app, visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app: ASGIApp = self._app
        if scope["type"] == "http" and scope["path"].rstrip("/") == "/logout":
            app = _sign_out(Request(scope))
        elif scope["type"] == "http" and scope["app"].auth is not None:
            app = self._refusal(Request(scope)) or app
        await app(scope, receive, send)

    def _refusal(self, request: Request) -> PlainTextResponse | None:
        """The response that refuses a request; None if the request is allowed."""
        path = request.url.path.rstrip("/")
        if path == "/login" and not self._visitors.count_login(request.client.host if request.client else None):
            return PlainTextResponse(f"More than {LOGINS_PER_MINUTE} attempts within a minute; try later.", 429)
        # Opening a poll (/audience) needs a sign-in. Voting (/audience/CODE) does not: the code lets phones in.
        is_guarded = (path.startswith(API) and not path.startswith(OPEN_PATHS)) or path == "/audience"
        return PlainTextResponse("Sign in first.", 401) if is_guarded and not _has_signed_in(request) else None


def _has_signed_in(request: Request) -> bool:
    return any(token in request.app.tokens for token in _tokens(request).values())


def _tokens(request: Request) -> dict[str, str | None]:
    """Gradio's cookies for sign-ins: name -> this browser's token, if any."""
    names = [f"access-token-{kind}{request.app.cookie_id}" for kind in ("", "unsecure-")]
    return {name: request.cookies.get(name) for name in names}


def _sign_out(request: Request) -> Response:
    """Sign this browser out on a POST; a GET gets a page whose button sends the POST.

    Another site's page cannot send a POST (`Guard`). Gradio's own route signs out all of a user's browsers on a GET.
    """
    if request.method != "POST":
        return HTMLResponse(SIGN_OUT_PAGE, headers={"Content-Security-Policy": SIGN_OUT_POLICY})
    response = HTMLResponse("<!doctype html><p>Signed out.</p>")
    for name, token in _tokens(request).items():
        request.app.tokens.pop(token, None)
        response.delete_cookie(name)
    return response
