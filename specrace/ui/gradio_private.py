"""What the page needs of Gradio that Gradio does not promise: its queue's period, its HTML, sign-ins, tools.

What its page's scripts need of Gradio's page is in static/gradio.js.
"""

from __future__ import annotations

import copy
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.ui.guard import API
from specrace.ui.visitors import LOGINS_PER_MINUTE, Visitors

QUEUE_PERIOD_S = 0.01
# Each has a copy of the page's configuration, 0.2 MB; Gradio keeps 10,000. One that went is made again.
SESSIONS = 100
# What the page asks for before anybody has signed in. Phones vote without an account: a poll's code lets them in.
OPEN = tuple(f"{API}/{name}" for name in ("login_check", "app_id", "startup-events", "user"))


def be_frugal(page: gr.Blocks) -> None:
    """Gradio looks a thousand times a second whether an event waits; a race in the same process pays for that.

    It also keeps what it knows of each session, and each call of the API is one.
    """
    page._queue.sleep_when_free = QUEUE_PERIOD_S
    page.state_session_capacity = SESSIONS


def serve_tools(page: gr.Blocks, types: Mapping[str, Any]) -> None:
    """Let a page's MCP tools call its endpoints in this process, and answer as JSON; `types` are parameters' schemas.

    Gradio's own way is to call its server over HTTP: it would upload files of this machine that a caller names, and all
    callers would come from this machine. What else MCP knows but tools would go that way too.
    """
    server: Any = page.mcp_server_obj
    if server is None:
        raise RuntimeError(page.mcp_error)
    find = server.get_block_fn_from_endpoint_name

    def find_direct(name: str) -> Any:
        found = copy.copy(find(name))
        found.queue = False
        return found

    def refuse() -> None:
        raise ValueError("This server has tools only.")

    def as_text(data: Any, _: str) -> list[Any]:
        return [server.types.TextContent(type="text", text=json.dumps(each, ensure_ascii=False)) for each in data]

    server.get_block_fn_from_endpoint_name, server._get_or_create_client = find_direct, refuse
    server.postprocess_output_data = as_text
    for endpoint in server.api_info["named_endpoints"].values():
        for each in endpoint["parameters"]:
            own = types.get(each["parameter_name"], each["type"])
            # A tool has its help beside the type.
            each["type"] = {name: value for name, value in own.items() if name != "additional_description"}


class EarlyHead:
    """ASGI middleware that puts some HTML first into the head of the app's page; all else passes as it is.

    Modules run in the page's order, and what `launch(head=...)` adds comes after Gradio's own.
    """

    def __init__(self, app: ASGIApp, html: str) -> None:
        self._app = app
        self._head = f"<head>{html}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_page = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
        await self._app(scope, receive, self._editing(send) if is_page else send)

    def _editing(self, send: Send) -> Send:
        """`send` with the HTML in the page, which comes in one piece and says how long it is."""
        begin: Message = {}

        async def edit(message: Message) -> None:
            if message["type"] == "http.response.start":
                begin.update(message)
                return
            if begin:
                body = message.get("body", b"").replace(b"<head>", self._head, 1)
                MutableHeaders(scope=begin)["content-length"] = str(len(body))
                await send({**begin})
                begin.clear()
                message = {**message, "body": body}
            await send(message)

        return edit


def password_check(auth: str | None) -> Callable[[str, str], bool] | None:
    """What Gradio asks whether a user may sign in; None where nobody needs to. `auth` is USER:PASSWORD."""
    if auth is None:
        return None

    def check(user: str, password: str) -> bool:
        # As one text: its time depends on neither of the two alone.
        return hmac.compare_digest(f"{user}:{password}".encode(), auth.encode())

    return check


class SignedIn:
    """ASGI middleware: with --auth, only those who have signed in use the API. Gradio guards some routes only."""

    def __init__(self, app: ASGIApp, visitors: Visitors) -> None:
        self._app, self._visitors = app, visitors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        refusal = None
        if scope["type"] == "http" and scope["app"].auth is not None:
            refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> PlainTextResponse | None:
        path = request.url.path.rstrip("/")
        if path == "/login" and not self._visitors.login(request.client.host if request.client else None):
            return PlainTextResponse(f"More than {LOGINS_PER_MINUTE} attempts within a minute; try later.", 429)
        # Votes lie below /audience; a poll is opened there.
        guarded = (path.startswith(API) and not path.startswith(OPEN)) or path == "/audience"
        return PlainTextResponse("Sign in first.", 401) if guarded and not _has_signed_in(request) else None


def _has_signed_in(request: Request) -> bool:
    tokens = (request.cookies.get(f"access-token-{kind}{request.app.cookie_id}") for kind in ("", "unsecure-"))
    return any(token in request.app.tokens for token in tokens)
