"""The page below a proxy's path, and the description that other sites show when they link to the page."""

from __future__ import annotations

import html
import re
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from specrace.ui.server.scripts import STATIC

TITLE = "specrace"
DESCRIPTION = "Draft-and-verify decoders, raced on your documents: what is drafted, what is accepted, and how fast."
PICTURE = "preview.png"
PICTURE_SIZE = (1200, 630)
# The tags with which Gradio describes the page, and the tag of its manifest, which would be outside the proxy's path.
_GRADIO_TAGS = re.compile(
    rb"<meta\s[^>]*?(?:property|name)=\"(?:og|twitter):[^>]*>\s*|<link\s[^>]*?href=\"/manifest\.json\"[^>]*>\s*"
)


class BelowPath:
    """ASGI middleware that removes the proxy's path from a request, if the proxy has not done so.

    The page's links are relative, so a request for the proxy's path without a final slash is redirected to the path
    with one.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        root = self._root_path
        if root and scope["type"] == "http" and f"{scope['path']}/".startswith(f"{root}/"):
            path = scope["path"][len(root) :]
            if not path:
                query = scope.get("query_string", b"").decode("latin-1")
                await RedirectResponse(f"{root}/{'?' if query else ''}{query}")(scope, receive, send)
                return
            raw_path = scope.get("raw_path") or b""
            # Keep `raw_path` if possible: a name in it may contain an encoded slash, which is decoded in `path`.
            is_plain = unquote(raw_path[: len(root)].decode("latin-1")) == root
            scope = {**scope, "path": path, "raw_path": raw_path[len(root) :] if is_plain else path.encode()}
        await self._app(scope, receive, send)


def describe_link(page: bytes, scope: Scope, root_path: str = "") -> bytes:
    """The page's HTML with our title, description and picture, in place of Gradio's, for sites that link to it.

    The Open Graph protocol (ogp.me) wants absolute addresses. Their host is the one that the request names, which the
    guard has checked.
    """
    address = f"{scope['scheme']}://{Headers(scope=scope).get('host', '')}{root_path}"
    picture = f"{address}/{PICTURE}"
    width, height = PICTURE_SIZE
    properties = {
        "og:type": "website",
        "og:url": f"{address}/",
        "og:title": TITLE,
        "og:description": DESCRIPTION,
        "og:image": picture,
        "og:image:width": str(width),
        "og:image:height": str(height),
        "og:image:alt": "A finished race: the lanes' bars, speeds and texts.",
    }
    names = {
        "twitter:card": "summary_large_image",
        "twitter:title": TITLE,
        "twitter:description": DESCRIPTION,
        "twitter:image": picture,
    }
    tags = [f'<meta property="{name}" content="{html.escape(value)}">' for name, value in properties.items()]
    tags += [f'<meta name="{name}" content="{html.escape(value)}">' for name, value in names.items()]
    return _GRADIO_TAGS.sub(b"", page).replace(b"</head>", "".join(tags).encode() + b"</head>", 1)


def picture_route() -> Route:
    """The route of the picture, which other sites may show."""
    data = (STATIC / "icons" / PICTURE).read_bytes()

    async def show(_: Request) -> Response:
        headers = {"Cross-Origin-Resource-Policy": "cross-origin", "Cache-Control": "public, max-age=86400"}
        return Response(data, media_type="image/png", headers=headers)

    return Route(f"/{PICTURE}", show)
