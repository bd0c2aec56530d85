"""Comments in front matter, fenced code and source code: "# ..." is neither a title, nor an address, nor a heading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrace.retrieval.code_spans import code_spans, overlapping
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.passages import split_passages
from specrace.retrieval.readers.text import from_markdown
from specrace.retrieval.suggestions import suggest_questions

FRONT_MATTER = "---\n# written by a tool\n{}\ntags: [a, b]\n---\n"
BODY = "Ferries leave at six.\n\n## Winter\n\nThey leave at nine.\n"


def read(tmp_path: Path, name: str, text: str) -> Document:
    """Write a file of this text and read it as a document."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_documents([tmp_path / name])[0]


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("title: The harbour", "The harbour"),
        ("Title: 'It''s \"deep\"'  # so they say", 'It\'s "deep"'),
        ('title: "A \\"quay\\" # 2"', 'A "quay" # 2'),
        ("title: Quay  # the old one", "Quay"),
        ("title: >", ""),
        ("title:", ""),
        ("subtitle: The harbour", ""),
    ],
)
def test_the_title_of_front_matter_is_read_without_comments(key: str, title: str) -> None:
    reading = from_markdown(FRONT_MATTER.format(key) + BODY)
    assert reading.title == title
    assert [mark.address for mark in reading.marks] == ["Winter"]
    assert reading.text == f"{key}\ntags: [a, b]\n\n{BODY}", (
        "only the comment may be left out, and a blank line must follow the keys"
    )


@pytest.mark.parametrize("opening", ["---\n# a comment\nauthor: Eve\n---\n", "+++\n# a comment\nauthor = 'Eve'\n+++\n"])
def test_a_heading_below_front_matter_is_the_title(opening: str) -> None:
    reading = from_markdown(f"{opening}\n# Harbour\n\n{BODY}")
    assert reading.title == "Harbour" and [mark.address for mark in reading.marks] == ["Winter"]


@pytest.mark.parametrize("text", ["---\n\nNote: a rule above\n\n# Title\n---\n", "---\nNo key here\n---\n# Title\n"])
def test_text_between_rules_is_not_front_matter(text: str) -> None:
    assert from_markdown(text).title == "Title"


def test_a_fence_ends_only_with_its_own_marks() -> None:
    text = "Text\n````py\n# one\n```\n# two\n````\n# three\n~~~\n# four\n```\n# five"
    assert [text[start:end].count("#") for start, end in code_spans(text)] == [2, 2]
    assert from_markdown(text).title == "three"


def test_a_line_with_code_between_backticks_opens_no_fence() -> None:
    assert from_markdown("```x``` is code.\n\n# Title\n").title == "Title"


CODE = "import harbour\n\n# Ferries leave at six o'clock in the morning.\n\ndef leave(): ...\n\n# They rest at night.\n"
COMMENT = "# Ferries leave at six o'clock in the morning."


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("code.py", CODE),
        ("guide.md", f"# Guide\n\nThe program:\n\n```python\n{CODE}```\n\nThe end.\n"),
        ("book.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": CODE}]})),
    ],
)
def test_a_comment_opens_no_section_and_no_question(tmp_path: Path, name: str, content: str) -> None:
    document = read(tmp_path, name, content)
    questions = suggest_questions([document], 20)
    assert not any("say about “Ferries leave" in question or "They rest" in question[:40] for question in questions)
    # With room for 10 words, a heading would begin a new passage, together with the text below it.
    for passage in split_passages(document, max_words=10):
        inside = [passage.text[start:end] for start, end in passage.code]
        assert COMMENT not in passage.text or any(COMMENT in span for span in inside)
        assert passage.text in document.text
    assert any(COMMENT in passage.text for passage in split_passages(document))


def test_comments_do_not_cut_source_code_into_sections(tmp_path: Path) -> None:
    lines = "".join(f"# step {number}\nx = {number}\n\n" for number in range(12))
    document = read(tmp_path, "code.py", lines)
    as_markdown = Document("code.md", "code", document.text)
    assert len(split_passages(document, max_words=30)) < len(split_passages(as_markdown, max_words=30))


def test_the_place_of_code_is_counted_from_the_start_of_the_passage() -> None:
    spans = ((0, 4), (6, 9), (12, 20))
    assert overlapping(spans, 2, 14) == ((0, 2), (4, 7), (10, 12))
    assert overlapping(spans, 4, 6) == () == overlapping(spans, 20, 30)
