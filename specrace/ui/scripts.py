"""The page's scripts: ES modules of the app's own, under a path that changes whenever one of them does."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

STATIC = Path(__file__).resolve().parent / "static"
FOREVER = "public, max-age=31536000, immutable"


def serve_scripts() -> tuple[Route, str]:
    """The route that serves them, and the HTML that loads them all at once, for the page's head."""
    scripts = {path.name: path.read_bytes() for path in sorted(STATIC.glob("*.js"))}
    digest = hashlib.sha256()
    for name, script in scripts.items():
        digest.update(f"{name} {len(script)} ".encode() + script)
    folder = f"scripts/{digest.hexdigest()[:16]}"

    async def serve(request: Request) -> Response:
        script = scripts.get(request.path_params["name"])
        if script is None:
            return Response(status_code=404)
        return Response(script, media_type="text/javascript", headers={"Cache-Control": FOREVER})

    tags = [f'<link rel="modulepreload" href="{folder}/{name}">' for name in scripts]
    tags.append(f'<script type="module" src="{folder}/main.js"></script>')
    return Route(f"/{folder}/{{name}}", serve), "".join(tags)
