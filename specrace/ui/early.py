"""A script that runs before any of Gradio's own: what `launch(head=...)` adds comes after them."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class EarlyScript:
    """ASGI middleware that puts a script first into the head of the app's page; all else passes as it is."""

    def __init__(self, app: ASGIApp, script: str) -> None:
        self._app = app
        self._head = f"<head><script>{script}</script>".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_page = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
        await self._app(scope, receive, self._editing(send) if is_page else send)

    def _editing(self, send: Send) -> Send:
        """`send` with the script in the page, which comes in one piece and says how long it is."""
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
