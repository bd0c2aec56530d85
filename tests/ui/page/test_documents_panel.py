"""The list of the passages of a visitor's documents: hostile text stays text, and the list is bounded."""

from __future__ import annotations

import json
from typing import Any

from specrace.ui.helper.upload_reader import Upload
from specrace.ui.page.documents_panel import MAX_LISTED, MAX_SHOWN, button_text, list_passages

HOSTILE = "<img src=x onerror=alert(1)>"


def upload(texts: dict[str, list[str]]) -> Upload:
    """An upload with these documents, each given as its passages."""
    documents: list[Any] = []
    passages: list[Any] = []
    for number, (name, parts) in enumerate(texts.items()):
        documents.append((name, name, "".join(parts)))
        end = 0
        for part in parts:
            # (number of the document, start, end, place in the document, spans of code).
            passages.append((number, end, end + len(part), HOSTILE, []))
            end += len(part)
    content = json.dumps({"documents": documents, "passages": passages}).encode()
    return Upload(tuple(texts), len(passages), (), (), content)


def test_hostile_names_places_and_texts_are_shown_as_text() -> None:
    shown = list_passages(upload({f"{HOSTILE}.md": [HOSTILE, "x" * 500], "b.md": ["y"]}))
    # In a name, a text, and the places of three passages.
    assert "<img" not in shown and shown.count("&lt;img") == 5
    assert "2 passages</summary>" in shown and "1 passage</summary>" in shown
    assert "x" * MAX_SHOWN + "…" in shown and "x" * (MAX_SHOWN + 1) not in shown
    assert button_text(upload({"a.md": ["x"], "b.md": ["y", "z"]})) == "Your documents: 2"


def test_a_long_list_is_cut_and_says_so() -> None:
    shown = list_passages(upload({"a.md": ["x"] * MAX_LISTED, "b.md": ["y"] * 5}))
    assert shown.count("<li") == MAX_LISTED
    assert f"The first {MAX_LISTED} of {MAX_LISTED + 5} passages" in shown
    assert "b.md: 5 passages" in shown


def test_without_documents_the_panel_says_what_races_search() -> None:
    assert "server's documents" in list_passages(None) and button_text(None) == "Your documents"
