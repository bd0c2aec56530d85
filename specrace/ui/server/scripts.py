"""Serves the page's scripts (ES modules), and the icons and manifest with which a phone can install it as an app.

The path of all of them changes whenever one of the files changes, so browsers may cache them forever.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

STATIC = Path(__file__).resolve().parents[1] / "static"
# The script of the page on the audience's phones.
VOTER = "audience/voter.js"
FOREVER = "public, max-age=31536000, immutable"
TYPES = {
    ".js": "text/javascript",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def serve_scripts() -> tuple[Route, str, str]:
    """The files' route, the HTML for the page's head that loads the scripts, and the HTML of the page on phones."""
    paths = sorted(path for path in STATIC.rglob("*") if path.suffix in TYPES)
    files = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in paths}
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    folder = f"scripts/{digest.hexdigest()[:16]}"

    async def serve(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return Response(status_code=404)
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers={"Cache-Control": FOREVER})

    tags = [
        f'<link rel="modulepreload" href="{folder}/{name}">' for name in files if name.endswith(".js") and name != VOTER
    ]
    tags.append(f'<script type="module" src="{folder}/main.js"></script>')
    tags.append(f'<link rel="manifest" href="{folder}/app.webmanifest">')
    tags.append(f'<link rel="apple-touch-icon" href="{folder}/icons/icon-192.png">')
    phone_page = (STATIC / "audience" / "audience.html").read_text(encoding="utf-8").replace("{scripts}", folder)
    return Route(f"/{folder}/{{name:path}}", serve), "".join(tags), phone_page
