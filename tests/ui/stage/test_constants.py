"""The server's constants in the page: they are valid HTML, and no script repeats a route or a bound."""

from __future__ import annotations

import html
import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from specrace.ui.server.scripts import STATIC
from specrace.ui.stage.constants import Constants, Routes

SCRIPTS = sorted(STATIC.rglob("*.js"))


def test_the_tag_holds_the_constants_even_if_one_has_quotes() -> None:
    constants = Constants('http://a"><script>')
    match = re.fullmatch(r'<meta name="specrace-constants" content="([^"<>]*)">', constants.tag())
    assert match and json.loads(html.unescape(match[1])) == asdict(constants)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_no_script_repeats_a_route_or_a_bound_of_the_tag(script: Path) -> None:
    text = re.sub(r"^\s*//.*$", "", script.read_text(encoding="utf-8"), flags=re.MULTILINE)
    routes = [route for route in vars(Routes()).values() if re.search(rf"[\"'`]{re.escape(route)}[\"'`/?]", text)]
    numbers = [float(literal.replace("_", "")) for literal in re.findall(r"(?<![\w.])\d[\d_]*(?:e\d+)?\b", text)]
    bounds = {Constants.max_document_bytes, Constants.max_recording_bytes, Constants.max_new_tokens}
    # Gradio's own routes begin with "gradio_api"; the server gives their addresses, too.
    assert "gradio_api" not in text and not routes and not bounds.intersection(numbers)
