"""The questions of a comparison as token ids: from a file of questions or prompts, from documents, or from a log."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from specrace.cli.shared.arguments import open_log
from specrace.cli.shared.opening import find_tokenizer, open_workbench
from specrace.cli.shared.questions import AUTO, auto_count, draw_questions, read_prompts, report_cuts
from specrace.cli.shared.servers import decoder
from specrace.cli.shared.terminal import complain
from specrace.core.bundled import BUNDLED_MODEL, QUESTIONS
from specrace.core.errors import InputError, shorten
from specrace.core.files import open_regular
from specrace.engine.spec import RaceSpec
from specrace.lab.compare.samples import Question
from specrace.retrieval.prompt import check_prompt

# The vocabulary size that is assumed without --vocab-size: more than any model has.
UNBOUNDED = 1 << 31
# A line of questions or prompts has one of NAMES and none of OUTPUTS; a line with one of OUTPUTS is from a log.
NAMES = {"question", "prompt", "prompt_ids"}
OUTPUTS = {"output", "output_ids"}
_MAX_LINE_BYTES = 1_000_000


@dataclass(frozen=True)
class ServedQuestions:
    """Questions as token ids, and what answers are checked with: the tokenizer's `decode`, and its vocabulary size."""

    rows: tuple[Question, ...]
    decode: Callable[[Sequence[int]], str]
    vocab_size: int


def read_served_questions(options: argparse.Namespace) -> ServedQuestions:
    """The questions of --questions, at most --limit of them. Raises InputError.

    Questions need the model, because they get passages from the documents; prompts and logs need only its tokenizer.
    """
    source = str(options.questions or (AUTO if options.docs or options.index else QUESTIONS))
    count = auto_count(source)
    if count is None and not holds_prompts(Path(source), options):
        served = _from_log(options, Path(source))
    else:
        lines = [] if count else read_prompts(Path(source), options.limit)
        has_questions = count is not None or any("question" in line for line in lines)
        served = _from_model(options, lines, count) if has_questions else _from_prompts(options, lines)
    for row in served.rows:
        if max(row.prompt) >= served.vocab_size:
            raise InputError(
                f"Question {shorten(row.id)} has the token {max(row.prompt)}, and the vocabulary has only "
                f"{served.vocab_size}; name the tokenizer of the served model with --tokenizer."
            )
    return served


def holds_prompts(path: Path, options: argparse.Namespace) -> bool:
    """Whether a file has questions or prompts, rather than requests with their outputs."""
    if path.suffix.lower() in (".txt", ".csv", ".tsv"):
        return options.columns is None and not options.format
    if options.format or path.suffix.lower() not in (".jsonl", ".json") or path.is_dir():
        return False
    try:
        with open_regular(path) as stream:
            first_line = stream.read(_MAX_LINE_BYTES).lstrip().partition(b"\n")[0]
    except OSError as error:
        raise InputError(f"{shorten(path)} cannot be read ({error.strerror}); give another --questions.") from error
    row: Any = None
    with suppress(ValueError, RecursionError):
        row = json.loads(first_line)
    return isinstance(row, dict) and bool(NAMES & row.keys()) and not OUTPUTS & row.keys()


def _from_log(options: argparse.Namespace, path: Path) -> ServedQuestions:
    """The prompts of a log, without its outputs."""
    log = open_log(options, path)
    transcripts = islice(log, options.limit)
    rows = tuple(
        Question(transcript.id or str(number), transcript.category, tuple(transcript.prompt))
        for number, transcript in enumerate(transcripts, 1)
    )
    for remark in (*log.reasons, *log.remarks.sentences()):
        complain(f"{path.name}: {remark}")
    if not rows:
        raise InputError(f"{shorten(path)} holds no request that can be sent; give another --questions.")
    return _with_tokenizer(options, rows)


def _from_prompts(options: argparse.Namespace, lines: Sequence[dict[str, Any]]) -> ServedQuestions:
    """Prompts as token ids, or as texts, which are tokenized without a template."""
    tokenizer = _tokenizer(options)
    rows = []
    for line in lines:
        tokens = line.get("prompt_ids")
        if tokens is None:
            check_prompt(line["prompt"])
            tokens = tokenizer(line["prompt"])
        rows.append(Question(line["id"], str(line.get("category", "none")), tuple(tokens)))
    return _with_tokenizer(options, tuple(rows))


def _tokenizer(options: argparse.Namespace) -> Any:
    return find_tokenizer(options.tokenizer or options.model or str(BUNDLED_MODEL), quiet=options.json)


def _with_tokenizer(options: argparse.Namespace, rows: tuple[Question, ...]) -> ServedQuestions:
    tokenizer = _tokenizer(options)

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens)))

    return ServedQuestions(rows, decode, options.vocab_size or UNBOUNDED)


def _from_model(options: argparse.Namespace, lines: Sequence[dict[str, Any]], count: int | None) -> ServedQuestions:
    """Prompts with passages for the questions in `lines`, or for `count` drawn ones; `lines` may also have prompts."""
    # Imported here, because it imports torch, which logs and prompts do not need.
    from specrace.answers import prepare

    spec = RaceSpec(("vanilla",), max_new_tokens=options.max_new_tokens)
    workbench = open_workbench(options)
    lines = lines or draw_questions(workbench.documents, count or 0)[: options.limit]
    target = workbench.target
    rows = []
    for line in lines:
        if "question" in line:
            prepared = prepare(workbench, line, spec, options.passages, options.noise, on_cuts=report_cuts)
            tokens = tuple(prepared.prompt.tokens)
        elif "prompt" in line:
            check_prompt(line["prompt"])
            tokens = tuple(target.tokenizer(line["prompt"])["input_ids"])
        else:
            tokens = tuple(line["prompt_ids"])
        rows.append(Question(line["id"], str(line.get("category", "none")), tokens))
    return ServedQuestions(tuple(rows), decoder(target), target.vocab_size)
