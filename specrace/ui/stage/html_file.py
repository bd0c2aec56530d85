"""Writes recorded races as one HTML file that plays them from a disk, without a server and without a network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import importlib.util
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from specrace.core.bundled import RECORDINGS
from specrace.core.events import Event
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui.server.guard import EXPORT
from specrace.ui.server.scripts import STATIC
from specrace.ui.stage.bundle import bundle
from specrace.ui.stage.constants import Constants
from specrace.ui.stage.parts import ASKED, BRAND, describe_methods, read_static, stage_style
from specrace.ui.wire import ExportSettings, to_json
from specrace.views.recording_check import PAGE_LIMITS, read_recording
from specrace.views.reel import reel_json

# The recorded races of the tour, which explains drafting in five chapters (static/explanations/tour.js).
TOUR = ("smollm2-copying", "smollm2-losing")
# The fonts of the page, which ship with Gradio: family -> folder, and weight -> style in the file's name.
FONTS = {"Source Sans Pro": "SourceSansPro", "IBM Plex Mono": "IBMPlexMono"}
WEIGHTS = {400: "Regular", 700: "Bold"}
# The placeholder for the races in a page without races.
RACES = "<!-- races -->"
# The mode of exported files: everybody may read them.
PUBLIC = 0o644
# Whatever text a recording holds, only the file's own script runs, nothing is loaded, and nothing is sent.
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; font-src data:; img-src data: blob:; "
    "media-src blob:; connect-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Recording:
    """A recorded race, checked when it was read, and its name in the HTML file."""

    name: str
    events: Sequence[Event]


def read_recordings(paths: Sequence[Path], taken: Sequence[str] = TOUR) -> list[Recording]:
    """The recordings in files, each with a name of its own that is not in `taken`.

    Raises InputError for a recording that the page cannot play.
    """
    recordings: list[Recording] = []
    for path in paths:
        name = unused_name(path.stem, [*taken, *(recording.name for recording in recordings)])
        recordings.append(Recording(name, read_recording(path, PAGE_LIMITS)))
    return recordings


def unused_name(name: str, names: Sequence[str]) -> str:
    """`name`, or the first of name-2, name-3, ... that is not among `names`."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(choice for choice in itertools.chain([name], numbered) if choice not in names)


def write_html(recordings: Sequence[Recording], *, tour: bool = False) -> str:
    """An HTML page that plays `recordings`, beginning with the first; with `tour`, it also has the tour's two races.

    Raises InputError for a figure that JSON cannot hold.
    """
    extra = _tour_recordings() if tour else []
    return _fill(empty_html(num_offered=len(recordings)), [*recordings, *extra])


def tour_html() -> str:
    """An HTML page that plays the tour."""
    return _fill(empty_html(opens_tour=True), _tour_recordings())


def export_route() -> Route:
    """The route of a page without races, to which the stage adds the race that it saves (static/lib/share.js)."""

    async def show(_: Request) -> Response:
        return HTMLResponse(await to_thread.run_sync(empty_html))

    return Route(EXPORT, show)


def _tour_recordings() -> list[Recording]:
    return read_recordings([RECORDINGS / f"{name}.jsonl" for name in TOUR], taken=())


def _fill(page: str, recordings: Sequence[Recording]) -> str:
    return page.replace(RACES, "\n".join(map(_reel, recordings)))


def _reel(recording: Recording) -> str:
    """The element with a recording's reel, which is the JSON that the page plays, compressed to about a sixth."""
    packed = gzip.compress(reel_json(recording.events).encode(), mtime=0)
    # Base64 contains no markup.
    code = base64.b64encode(packed).decode()
    return f'<script type="application/octet-stream" data-reel="{html.escape(recording.name)}">{code}</script>'


@cache
def empty_html(num_offered: int = 1, *, opens_tour: bool = False) -> str:
    """The page, with RACES in place of its races. It plays the first `num_offered`, or with `opens_tour` the tour.

    Its script fills in the title, and where the race was recorded.
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    settings = ExportSettings(describe_methods(), list(DEFAULT_LANES), num_offered, opens_tour)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY.format(script=f"sha256-{digest}")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A race · specrace</title>
{Constants().tag()}
<style>{font_faces(FONTS)}{read_static("exported_race.css")}{stage_style()}</style>
</head>
<body>
<div class="gradio-container">
<header id="top-bar" class="asked"><div id="brand">{BRAND}</div><div id="asked">{ASKED}</div>
<div id="tour">{read_static("tour.html")}</div><div id="menu">{_menu()}</div></header>
<main id="stage-host">{read_static("stage/stage.html")}</main>
<footer id="provenance"></footer>
</div>
<script type="application/json" id="specrace-props">{to_json(settings)}</script>
{RACES}
<script>{script}</script>
</body>
</html>
"""


def _menu() -> str:
    """The page's menu without its links, which lead to the server."""
    return re.sub(r"\s*<a .*?</a>", "", read_static("menu.html"))


def _script() -> str:
    """The file's script, without "</script", which would end it, and "<!--", with which RACES begins."""
    script = bundle(STATIC, "exported_race.js")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\u0021--")


def font_faces(families: Iterable[str]) -> str:
    """CSS with the files of these `families` of FONTS, from Gradio's package; "" if Gradio is not installed."""
    gradio = importlib.util.find_spec("gradio")
    if gradio is None or gradio.origin is None:
        return ""
    faces, fonts = [], Path(gradio.origin).parent / "templates" / "frontend" / "static" / "fonts"
    for family in families:
        for weight, style in WEIGHTS.items():
            path = fonts / FONTS[family] / f"{FONTS[family]}-{style}.woff2"
            if path.is_file():
                code = base64.b64encode(path.read_bytes()).decode()
                faces.append(
                    f'@font-face {{ font-family: "{family}"; font-weight: {weight}; '
                    f"src: url(data:font/woff2;base64,{code}); }}\n"
                )
    return "".join(faces)
