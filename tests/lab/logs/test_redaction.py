"""Prompts and answers that a logger replaced by a mark or truncated."""

from __future__ import annotations

import pytest

from specrace.lab.logs.formats.base import Exchange
from specrace.lab.logs.redaction import explain_redaction, is_mark

QUESTION = [{"role": "user", "content": "When does the ferry leave?"}]


def answer(text: str) -> dict[str, str]:
    """An assistant's message."""
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "mark",
    [
        "redacted-by-litellm",
        "<fully masked due to failed mask function>",
        "__REDACTED__",
        "[REDACTED]",
        "[Filtered]",
        "<content removed>",
        "*** hidden ***",
        "[This value has been dropped because this span's size exceeds the 1MB size limit.]",
        "<body too large>",
        "******",
        " REDACTED\n",
        "sha256:9f86d081884c7d659a2feaa0c55ad015",
    ],
)
def test_a_mark_in_place_of_a_text_is_recognised(mark: str) -> None:
    assert is_mark(mark)
    assert "answer is redacted" in explain_redaction(Exchange(QUESTION, answer(mark)))
    assert "prompt is redacted" in explain_redaction(Exchange([{"role": "user", "content": mark}], answer("At nine.")))


@pytest.mark.parametrize(
    "text",
    [
        "The name was redacted in the report, and nobody removed the mark.",
        "[The removed stone](https://example.org/stone) is the oldest one of the mole.\n\nIt stands again.",
        "* hidden *\n* filtered *",
        "**The file was removed.**",
        "(Nobody knows what was hidden there.)",
        "[He dropped it](https://example.org/anchor), and it was too large.",
        "x",
        "No.",
        '{"masked": false}',
    ],
)
def test_text_about_redaction_is_not_a_mark(text: str) -> None:
    assert not is_mark(text)
    assert explain_redaction(Exchange(QUESTION, answer(text))) == ""


@pytest.mark.parametrize(
    "end", ["... [truncated]", "[TRUNCATED]", "… 1,204 more characters", "...(truncated 90 bytes)", "<truncated>"]
)
def test_an_answer_that_the_logger_truncated_is_named(end: str) -> None:
    assert "truncated" in explain_redaction(Exchange(QUESTION, answer(f"At nine, and then {end}")))
    assert "truncated" in explain_redaction(Exchange("When?", f"At nine, and then {end}"))


def test_a_prompt_may_quote_a_mark_of_truncation_at_its_end_but_not_litellms() -> None:
    quoting = [{"role": "user", "content": "What does this mean: [truncated]"}]
    assert explain_redaction(Exchange(quoting, answer("Cut."))) == ""
    truncated = [{"role": "user", "content": "a ... (litellm_truncated skipped 900 chars) ... b"}]
    assert "prompt is truncated" in explain_redaction(Exchange(truncated, answer("Cut.")))


def test_a_tools_result_and_token_ids_are_never_marks() -> None:
    messages = [*QUESTION, {"role": "tool", "content": "[Old tool result content removed]"}]
    assert explain_redaction(Exchange(messages, answer("At nine."))) == ""
    assert explain_redaction(Exchange((1, 2), (3,))) == ""
