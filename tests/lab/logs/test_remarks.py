"""Remarks about a log: token counts that differ from its texts, warnings, repeated prompts."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.base import Exchange, Usage
from specrace.lab.logs.remarks import Remarks

MESSAGES = [{"role": "user", "content": "a"}]
ANSWER = {"role": "assistant", "content": "b"}


def remarks_of(usage: Usage, prompt_tokens: int, output_tokens: int, answer: dict[str, str] = ANSWER) -> list[str]:
    """The remarks on one request; `usage` is the log's own count of its tokens."""
    remarks = Remarks()
    remarks.add(Exchange(MESSAGES, answer, usage=usage), (), prompt_tokens, output_tokens)
    return remarks.sentences()


@pytest.mark.parametrize(
    ("usage", "part"),
    [
        (Usage(output=1500), "counts 1,500 output tokens, and the log holds 40"),
        (Usage(output=7), "counts only 7 output tokens, and the log holds 40"),
        (Usage(prompt=900), "counts 900 prompt tokens, and the log holds 30"),
        # Nothing is reported: 30 tokens are at most 2.5 times as many, and 16 more.
        (Usage(prompt=6), ""),
        (Usage(reasoning=300), "counts 300 tokens of reasoning"),
    ],
)
def test_counts_that_no_tokenizer_explains_are_reported(usage: Usage, part: str) -> None:
    sentences = remarks_of(usage, 30, 40)
    assert [part in sentence for sentence in sentences] == ([True] if part else [])
    assert all(sentence.startswith("1 of 1 requests (100 %)") for sentence in sentences)


@pytest.mark.parametrize("usage", [Usage(), Usage(prompt=30, output=40), Usage(prompt=44, output=60, reasoning=3)])
def test_counts_near_the_logs_own_are_not_reported(usage: Usage) -> None:
    assert remarks_of(usage, 30, 40) == []


def test_reasoning_that_is_in_the_log_is_not_reported() -> None:
    assert remarks_of(Usage(reasoning=300), 30, 40, ANSWER | {"reasoning_content": "c"}) == []


def test_warnings_are_counted_with_their_share() -> None:
    remarks = Remarks()
    for number in range(4):
        warnings = ("the template is old",) if number else ()
        remarks.add(Exchange(MESSAGES, ANSWER, warnings=warnings), warnings, 1, 1)
    assert remarks.sentences() == ["3 of 4 requests (75 %): the template is old."]


def test_many_different_warnings_do_not_fill_the_memory() -> None:
    remarks = Remarks()
    for number in range(500):
        remarks.add(Exchange(MESSAGES, ANSWER), (f"reason {number}",), 1, 1)
    assert len(remarks.warnings) < 50
    assert sum(remarks.warnings.values()) == 500


ASKED = "one two three four five six seven eight:"
TEMPLATED = f"system\nBe brief.\nuser\n{ASKED}\nassistant\nnine"


@pytest.mark.parametrize(
    ("prompt", "output", "is_reported"),
    [
        (ASKED, f"{ASKED} nine", True),
        (f"  {ASKED}\n", f"{ASKED} nine", True),
        (ASKED, f"<s> {ASKED} nine", True),
        (ASKED, TEMPLATED, True),
        (ASKED, f"[INST] {ASKED} [/INST] nine", True),
        (ASKED, f"<|system|>\nBe brief.</s>\n<|user|>\n{ASKED}</s>\n<|assistant|>\nnine", True),
        ([{"role": "user", "content": ASKED}], {"role": "assistant", "content": TEMPLATED}, True),
        ([{"role": "user", "content": ASKED}], {"role": "assistant", "content": f"Here it is: {ASKED} nine"}, False),
        ([{"role": "tool", "content": ASKED}], {"role": "assistant", "content": ASKED}, False),
        (ASKED, "nine", False),
        (ASKED, f"```\n{ASKED} nine", False),
        # Fewer than eight words, and none but special tokens.
        ("one two:", "one two: three", False),
        ("<b> " * 9, "nine", False),
        (tuple(range(20)), tuple(range(25)), True),
        # 99 may be a special token.
        (tuple(range(20)), (99, *range(25)), True),
        (tuple(range(20)), tuple(range(1, 25)), False),
    ],
)
def test_an_output_that_repeats_its_prompt_is_reported(prompt: object, output: object, is_reported: bool) -> None:
    remarks = Remarks()
    remarks.add(Exchange(prompt, output), (), 20, 25)  # type: ignore[arg-type]
    assert any("repeats the whole prompt" in sentence for sentence in remarks.sentences()) is is_reported


@pytest.mark.parametrize(
    ("prompt", "output", "is_reported"),
    [
        ("a", r"b\nc", True),
        ("a", "b\nc", False),
        ("a", "print('b\\n')\nprint('c')", False),
        ("a\nb", r"b\nc", False),
        (MESSAGES, ANSWER | {"content": r"b\nc"}, True),
        ((1, 2), (3, 4), False),
    ],
)
def test_line_ends_that_a_logger_wrote_as_two_characters_are_reported(
    prompt: Any, output: Any, is_reported: bool
) -> None:
    remarks = Remarks()
    remarks.add(Exchange(prompt, output), (), 30, 30)
    assert [r"the two characters \n" in sentence for sentence in remarks.sentences()] == [True] * is_reported
