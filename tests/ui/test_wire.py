"""The types of the scripts are those of the JSON that the server sends."""

from __future__ import annotations

import json

from msgspec import UNSET, Struct, UnsetType

from specrace.ui.wire import LogLine, LogProgress, to_json
from tests.measure.wire_types import FILE, declarations, declare


def test_the_scripts_types_are_up_to_date() -> None:
    """If this fails, run `python -m tests.measure.wire_types`, then `deno check` as in `tests/run`."""
    assert FILE.read_text(encoding="utf-8") == declarations()


class Inner(Struct):
    """Inside."""

    name: str


class Outer(Struct, tag_field="kind", tag="outer"):
    """Outside."""

    pair: tuple[int, str | None]
    inner: list[Inner]
    times: dict[str, float] | UnsetType = UNSET


def test_a_struct_becomes_an_interface() -> None:
    needed: list[type] = []
    assert declare(Outer, needed.append) == (
        '\n/** Outside. */\nexport interface Outer {\n  kind: "outer";\n  pair: [number, string | null];\n'
        "  inner: Inner[];\n  times?: Record<string, number>;\n}\n"
    )
    assert needed == [Inner]


def test_fields_that_are_not_set_are_left_out_and_half_characters_are_kept() -> None:
    text = to_json(LogLine(progress=LogProgress(3), error="\ud83d"))
    assert text.isascii() and json.loads(text) == {"progress": {"requests": 3}, "error": "\ud83d"}
