"""What the page needs of Gradio that Gradio does not promise: its queue's period, and the HTML that it serves.

What its page's scripts need of Gradio's page is in static/gradio.js.
"""

from __future__ import annotations

import gradio as gr
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUEUE_PERIOD_S = 0.01


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
