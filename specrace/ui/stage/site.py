"""A folder for a static host: an index, a file for each race, the tour, and reports on logs."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, check_destination, read_bytes, write_atomically
from specrace.core.metrics import format_speedup
from specrace.ui.helper.gallery import describe_card
from specrace.ui.stage.html_file import PUBLIC, Recording, font_faces, tour_html, unused_name, write_html
from specrace.ui.stage.parts import BRAND, read_static
from specrace.ui.wire import RaceCard

# Names that no race's page may have, without ".html".
RESERVED = ("index", "tour")
MAX_REPORT_BYTES = 20_000_000
# The start of a report that `recommend --report` wrote.
DOCTYPE = b"<!doctype html>"
# Every page that specrace writes contains one of these: the end of its title or, in a report, its author.
OUR_MARKS = (" · specrace</title>".encode(), b"<p>Written by specrace ")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; form-action 'none'"


def write_site(
    folder: Path, recordings: Sequence[Recording], reports: Sequence[Path], title: str, inputs: Sequence[Path] = ()
) -> list[str]:
    """Write the index, the tour, a page for each recording and the `reports` into `folder`; return the files' names.

    Pages that specrace wrote are replaced. Raises InputError, and writes nothing, if another file or one of the
    `inputs` would be replaced, or if a report is not one. Raises InputError for a folder that cannot be written.
    """
    pages = {f"{recording.name}.html": write_html([recording]).encode() for recording in recordings}
    pages["tour.html"] = tour_html().encode()
    copies: dict[str, bytes] = {}
    for report in reports:
        name = f"{unused_name(f'report-{report.stem}', [Path(page).stem for page in (*pages, *copies)])}.html"
        copies[name] = _read_report(report)
    files = {**pages, **copies, "index.html": _index(title, recordings, list(copies)).encode()}
    for name in files:
        _check_page(folder / name, [*reports, *inputs])
    with as_input_error(folder, "folder"):
        for name, content in files.items():
            write_atomically(folder / name, content, PUBLIC)
    return list(files)


def _check_page(file: Path, inputs: Sequence[Path]) -> None:
    """Raise InputError unless `file` is new, or a page that specrace wrote and none of the `inputs`."""
    if not file.is_file():
        return
    check_destination(file, inputs)
    content = file.read_bytes()
    if not any(mark in content for mark in OUR_MARKS):
        raise InputError(f"{shorten(file)} was not written by specrace, and would be replaced; give another folder.")


def _read_report(path: Path) -> bytes:
    content = read_bytes(path, MAX_REPORT_BYTES, "give a report that recommend --report FILE.html wrote")
    if not content.lower().startswith(DOCTYPE):
        raise InputError(f"{shorten(path)} is not an HTML page; give a report that recommend --report FILE.html wrote.")
    return content


def _index(title: str, recordings: Sequence[Recording], reports: Sequence[str]) -> str:
    cards = "".join(_card(recording) for recording in recordings)
    links = "".join(f'<li><a href="{_link(name)}">{html.escape(Path(name).stem)}</a></li>' for name in reports)
    listed = f"<h2>Reports on logs</h2><ul>{links}</ul>" if reports else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)} · specrace</title>
<style>{font_faces(["Source Sans Pro"])}{read_static("site.css")}</style>
</head>
<body>
<header>{BRAND}</header>
<main>
<h2>{html.escape(title)}</h2>
<p><a class="tour" href="tour.html"><b>Tour</b> <span>How drafting works, in five short chapters</span></a></p>
<ul class="cards">{cards}</ul>
{listed}
</main>
</body>
</html>
"""


def _card(recording: Recording) -> str:
    card = describe_card(recording.name, recording.events)
    seconds = f"{card.ms / 1000:.2f} s"
    facts = f"{card.fastest}: {format_speedup(card.speedup)} vanilla · {len(card.lanes)} lanes · {seconds}"
    about = " · ".join(_facts(card))
    return (
        f'<li><a href="{_link(recording.name + ".html")}"><b>{html.escape(card.question or card.name)}</b>'
        f"<span>{html.escape(facts)}</span><small>{html.escape(about)}</small></a></li>"
    )


def _facts(card: RaceCard) -> list[str]:
    """The model, dtype, device and day of a race, without those that the recording does not have."""
    day = f"recorded {str(card.date)[:10]}" if card.date else ""
    return [str(fact) for fact in (card.model, card.dtype, card.device, day) if fact]


def _link(name: str) -> str:
    return html.escape(quote(name))
