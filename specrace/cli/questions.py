"""Question sets: files of questions or prompts, or questions drawn from the documents."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.files import read_text
from specrace.retrieval.documents import Document
from specrace.retrieval.suggestions import suggest_questions

MAX_PROMPT_BYTES = 100_000_000
AUTO = "auto"
OWN_QUESTIONS, MAX_OWN_QUESTIONS = 30, 10_000
FORMS = "auto[:N]: N drawn from the documents (30); a .txt file with one a line, a .csv file with a column question"

_AUTO = re.compile(rf"{AUTO}(?::(\d{{1,9}}))?")
# Of a question in a table.
_MAX_CHARACTERS = 1 << 17
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def auto_count(given: str) -> int | None:
    """How many questions "auto" or "auto:N" asks for; None for a file. Raises InputError."""
    found = _AUTO.fullmatch(given)
    if found is None:
        return None
    count = int(found[1] or OWN_QUESTIONS)
    if not 1 <= count <= MAX_OWN_QUESTIONS:
        raise InputError(f"{given} asks for {count} questions; give {AUTO}:1 to {AUTO}:{MAX_OWN_QUESTIONS}.")
    return count


def own_questions(documents: Sequence[Document], count: int) -> list[dict[str, Any]]:
    """Prompt lines from the documents' headings and key sentences. Raises InputError where they have none."""
    questions = suggest_questions(documents, count)
    if not questions:
        raise InputError("No question can be made from these documents; give a file of questions.")
    return _numbered(questions)


def read_prompts(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The questions of a .txt, .csv or .tsv file, or the objects of a JSONL file. Raises InputError with the line."""
    kind = path.suffix.lower()
    text = read_text(path, MAX_PROMPT_BYTES, "give a file with a question or prompt a line")
    # JSON may hold a line separator of Unicode's, at which `splitlines` splits.
    split = text.splitlines() if kind == ".txt" else text.split("\n")
    lines = ((number, line) for number, line in enumerate(split, 1) if line.strip())
    found: Iterator[dict[str, Any]]
    if kind == ".txt":
        found = ({"id": str(number), "question": line.strip()} for number, line in lines)
    elif kind in _DELIMITERS:
        found = iter(_numbered(_read_table(path, text, _DELIMITERS[kind])))
    else:
        found = ({"id": str(number), **_read_line(path, number, line)} for number, line in lines)
    prompts = list(islice(found, limit))
    if not prompts:
        raise InputError(f"{path} holds no prompt; write one a line.")
    return prompts


def _numbered(questions: Iterable[str]) -> list[dict[str, Any]]:
    return [{"id": str(number), "question": each} for number, each in enumerate(questions, 1)]


def _read_table(path: Path, text: str, delimiter: str) -> list[str]:
    """The column "question", else the first one; a first cell with a question mark, or of four words, is no head."""
    # The library's limit is one for the process, and a log that was read before has set its own.
    csv.field_size_limit(_MAX_CHARACTERS)
    try:
        # Spreadsheets of some countries write semicolons.
        head = text.lstrip().partition("\n")[0]
        delimiter = ";" if delimiter == "," and ";" in head and "," not in head else delimiter
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        raise InputError(f"{path} is no table ({error}); give a CSV file with a column question.") from error
    names = [name.strip().lower() for name in rows[0]] if rows else []
    column = names.index("question") if "question" in names else 0
    first = names[0] if names else ""
    headless = "question" not in names and (first.endswith("?") or len(first.split()) > 3)
    cells = [row[column].strip() for row in rows[0 if headless else 1 :] if len(row) > column]
    return [cell for cell in cells if cell]


def _read_line(path: Path, number: int, text: str) -> dict[str, Any]:
    line = None
    with suppress(ValueError, RecursionError):
        line = json.loads(text)
    if not isinstance(line, dict) or len({"question", "prompt", "prompt_ids"} & set(line)) != 1:
        raise InputError(f'{path}, line {number}: give an object with one of "question", "prompt" and "prompt_ids".')
    for name in ("question", "prompt"):
        if name in line and not (isinstance(line[name], str) and line[name].strip()):
            raise InputError(f"{path}, line {number}: {name} is not a text.")
    ids = line.get("prompt_ids", [0])
    if not (isinstance(ids, list) and ids and all(type(token) is int for token in ids)):
        raise InputError(f"{path}, line {number}: prompt_ids is no list of whole numbers.")
    return {name: str(value) if name == "id" else value for name, value in line.items()}
