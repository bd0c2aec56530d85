"""Question sets: read from files of questions or prompts, or drawn from the documents."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from specrace.cli.shared.terminal import complain
from specrace.core.errors import InputError
from specrace.core.files import read_text
from specrace.core.settings import SETTINGS
from specrace.retrieval.documents import Document
from specrace.retrieval.retriever import Hit
from specrace.retrieval.suggestions import suggest_questions

# A guess, far above any set of questions.
MAX_PROMPT_BYTES = 100_000_000
AUTO = "auto"
# The number of questions that "auto" draws from the documents, as many as the bundled set has, and the maximum for
# "auto:N".
NUM_DRAWN, MAX_DRAWN = 30, 10_000
FORMS = "auto[:N]: N (30) drawn from the documents; a .txt file, one per line; a .csv file with a column question"

_AUTO = re.compile(rf"{AUTO}(?::(\d{{1,9}}))?")
# The maximum length of a table's cell, which is also the default of the module csv.
_MAX_CELL_CHARS = 1 << 17
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def check_question_arguments(options: argparse.Namespace, max_repetitions: int) -> None:
    """Check --repetitions, --limit, --passages and --noise of a command that asks many questions. Raises InputError."""
    if not 1 <= options.repetitions <= max_repetitions:
        raise InputError(f"--repetitions is {options.repetitions}; give 1 to {max_repetitions}.")
    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit is {options.limit}; give 1 or more.")
    for setting in ("passages", "noise"):
        SETTINGS[setting].check(getattr(options, setting))


def auto_count(source: str) -> int | None:
    """How many questions "auto" or "auto:N" asks for; None for a file. Raises InputError."""
    match = _AUTO.fullmatch(source)
    if match is None:
        return None
    count = int(match[1] or NUM_DRAWN)
    if not 1 <= count <= MAX_DRAWN:
        raise InputError(f"{source} asks for {count} questions; give {AUTO}:1 to {AUTO}:{MAX_DRAWN}.")
    return count


def draw_questions(documents: Sequence[Document], count: int) -> list[dict[str, Any]]:
    """At most `count` questions about the documents' headings and key sentences, as {id, question}.

    Raises InputError if the documents have neither.
    """
    questions = suggest_questions(documents, count)
    if not questions:
        raise InputError("No question can be made from these documents; give a file of questions.")
    return _number_questions(questions)


def read_prompts(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Read at most `limit` prompts, each an object with "id" and one of "question", "prompt" and "prompt_ids".

    A line of a .txt file and a row of a .csv or .tsv file is a question; a line of any other file is such an object, in
    which "id" may be missing. Raises InputError that names the line.
    """
    suffix = path.suffix.lower()
    text = read_text(path, MAX_PROMPT_BYTES, "give a file with one question or prompt per line")
    # `splitlines` would also split JSON at Unicode's line separators, which a JSON string may contain.
    raw_lines = text.splitlines() if suffix == ".txt" else text.split("\n")
    lines = ((number, line) for number, line in enumerate(raw_lines, 1) if line.strip())
    rows: Iterator[dict[str, Any]]
    if suffix == ".txt":
        rows = ({"id": str(number), "question": line.strip()} for number, line in lines)
    elif suffix in _DELIMITERS:
        rows = iter(_number_questions(_read_table(path, text, _DELIMITERS[suffix])))
    else:
        rows = ({"id": str(number), **_read_line(path, number, line)} for number, line in lines)
    prompts = list(islice(rows, limit))
    if not prompts:
        raise InputError(f"{path} holds no prompt; write one per line.")
    return prompts


def read_questions(path: Path) -> list[dict[str, Any]]:
    """Read a file of questions, as {id, question}. Raises InputError, also if a line has no question."""
    lines = read_prompts(path)
    if not all("question" in line for line in lines):
        raise InputError(f'{path} has lines without a question; give lines of {{"question": ...}}.')
    return lines


def report_cuts(question_id: str, hits: Sequence[Hit]) -> None:
    """Say on standard error which passages of a question were cut to fit into the model's context.

    The place of such a passage says how much of it fits.
    """
    for hit in hits:
        if hit.left_out:
            complain(f"Question {question_id}: passage from {hit.passage.document}, {hit.passage.place}.")


def _number_questions(questions: Iterable[str]) -> list[dict[str, Any]]:
    return [{"id": str(number), "question": question} for number, question in enumerate(questions, 1)]


def _read_table(path: Path, text: str, delimiter: str) -> list[str]:
    """Read the column "question" of a table; if no column has that name, the first one.

    Its first cell is then a question, not a header, if it ends with a question mark or has four words or more: headers
    are short.
    """
    # Set before every file, because the limit is global and other readers set it too.
    csv.field_size_limit(_MAX_CELL_CHARS)
    try:
        # Spreadsheet programs of some countries write semicolons.
        first_line = text.lstrip().partition("\n")[0]
        if delimiter == "," and ";" in first_line and "," not in first_line:
            delimiter = ";"
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)]
    except csv.Error as error:
        raise InputError(f"{path} is not a table ({error}); give a CSV file with a column question.") from error
    names = [name.strip().lower() for name in rows[0]] if rows else []
    column = names.index("question") if "question" in names else 0
    first_name = names[0] if names else ""
    has_no_header = "question" not in names and (first_name.endswith("?") or len(first_name.split()) > 3)
    cells = [row[column].strip() for row in rows[0 if has_no_header else 1 :] if len(row) > column]
    return [cell for cell in cells if cell]


def _read_line(path: Path, number: int, text: str) -> dict[str, Any]:
    """Read and check a line of JSON. Raises InputError."""
    line = None
    with suppress(ValueError, RecursionError):
        line = json.loads(text)
    if not isinstance(line, dict) or len({"question", "prompt", "prompt_ids"} & set(line)) != 1:
        raise InputError(f'{path}, line {number}: give an object with one of "question", "prompt" and "prompt_ids".')
    for name in ("question", "prompt"):
        if name in line and not (isinstance(line[name], str) and line[name].strip()):
            raise InputError(f"{path}, line {number}: {name} is not text.")
    # [0], which passes the check, stands for a line without ids.
    ids = line.get("prompt_ids", [0])
    if not (isinstance(ids, list) and ids and all(type(token) is int for token in ids)):
        raise InputError(f"{path}, line {number}: prompt_ids is not a list of whole numbers.")
    return {name: str(value) if name == "id" else value for name, value in line.items()}
