"""What the page needs of Gradio that Gradio does not promise: its queue's period, its HTML, who has signed in.

What its page's scripts need of Gradio's page is in static/gradio.js.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

import gradio as gr
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specrace.ui.guard import API
from specrace.ui.visitors import LOGINS_PER_MINUTE, Visitors

QUEUE_PERIOD_S = 0.01
# What the page asks for before anybody has signed in. Phones vote without an account: a poll's code lets them in.
OPEN = tuple(f"{API}/{name}" for name in ("login_check", "app_id", "startup-events", "user"))


def slow_queue(page: gr.Blocks) -> None:
    """Gradio looks a thousand times a second whether an event waits; a race in the same process pays for that."""
    page._queue.sleep_when_free = QUEUE_PERIOD_S


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
