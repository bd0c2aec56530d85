"""Question sets: files of every format, broken files, and questions drawn from documents."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from specrace.cli.shared.questions import auto_count, draw_questions, read_prompts
from specrace.core.errors import InputError
from specrace.retrieval.documents import Document


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.txt", "\ufeffWhy?\n\n  How so?  \n"),
        ("q.csv", "id,Question\n7,Why?\n8,\n9,How so?\n"),
        ("q.csv", "query,answer\nWhy?,So.\n\nHow so?\n"),
        ("q.csv", '"Why?"\r\nHow so?'),
        ("q.csv", "question;answer\nWhy?;So.\nHow so?;Thus, so.\n"),
        ("q.tsv", "question\tn\nWhy?\t1\nHow so?\t2\n"),
        ("q.jsonl", '{"question": "Why?"}\n\n{"question": "How so?"}\n'),
        ("q.jsonl", '{"question": "Why?", "note": "a\u2028b\x85c"}\r\n\r\n{"question": "How so?"}\r\n'),
    ],
)
def test_questions_are_read_from_every_format(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    prompts = read_prompts(tmp_path / name)
    assert [line["question"] for line in prompts] == ["Why?", "How so?"]
    assert read_prompts(tmp_path / name, 1) == prompts[:1]
    # In tables the id counts the questions; in other files it is the number of the line.
    assert [line["id"] for line in prompts] == ["1", "2" if name in ("q.csv", "q.tsv") else "3"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.txt", " \n", "holds no prompt"),
        ("q.csv", "", "holds no prompt"),
        ("q.csv", "question\n", "holds no prompt"),
        ("q.csv", "question\n" + "x" * 200_000, "is not a table"),
        ("q.jsonl", '{"question": "Why?"}\n{"question": 7}', "line 2"),
        ("q.jsonl", '{"question": "Why?", "prompt": "x"}', "line 1"),
        ("q.jsonl", "[" * 100_000, "line 1"),
        ("q.txt", "\ud800", "not UTF-8"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(tmp_path: Path, name: str, content: str, message: str) -> None:
    csv.field_size_limit(1 << 30)  # another reader of tables in this process may have set this global limit
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=message):
        read_prompts(tmp_path / name)


def test_a_unicode_line_separator_does_not_end_a_row(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question\nWhy\u2028not?\x0bAnd how?\n", encoding="utf-8")
    assert [line["question"] for line in read_prompts(tmp_path / "q.csv")] == ["Why\u2028not?\x0bAnd how?"]


def test_auto_draws_a_number_of_questions_from_documents() -> None:
    assert [auto_count(name) for name in ("auto", "auto:7", "auto.txt", "questions.csv")] == [30, 7, None, None]
    for name in ("auto:0", "auto:99999"):
        with pytest.raises(InputError, match="auto:1 to auto:10000"):
            auto_count(name)
    document = Document("a.md", "Owls", "# Owls\n\n## Food\n\nOwls eat mice and voles in every night of the year.")
    assert [line["id"] for line in draw_questions([document], 9)] == ["1", "2", "3"]
    with pytest.raises(InputError, match="No question"):
        draw_questions([], 9)
