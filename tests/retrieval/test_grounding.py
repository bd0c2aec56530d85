"""Groundedness: an answer is as grounded as its least grounded sentence."""

from __future__ import annotations

import pytest

from specrace.retrieval.grounding import GROUNDED, groundedness

PASSAGES = ["Bread rises because yeast makes carbon dioxide.", "The gas is caught by gluten, a protein of wheat."]
QUESTION = "Why does bread rise?"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Yeast makes carbon dioxide, caught by gluten.", 1.0),
        ("Yeast makes carbon dioxide. Sugar and butter melt.", 0.0),
        ("Bread rises.", 1.0),
        ("Yeasts exhale carbon dioxides!", 0.75),
        ("Yeast makes carbon dioxide [1].", 1.0),
        ("Yeast makes carbon dioxide. [1] It is caught by gluten. [1, 2][3]", 1.0),
        ("", 0.0),
        (" \n", 0.0),
    ],
    ids=[
        "copied from the passages",
        "one sentence invented",
        "only words of the question",
        "words matched by stem, one not found",
        "citation inside the sentence",
        "citations after the sentence",
        "empty",
        "blank",
    ],
)
def test_groundedness_is_that_of_the_worst_sentence(answer: str, expected: float) -> None:
    assert groundedness(answer, QUESTION, PASSAGES) == pytest.approx(expected)
    # GROUNDED is 0.8, so three words of four are not enough.
    assert (expected >= GROUNDED) == (expected == 1.0)


def test_without_passages_no_answer_is_grounded() -> None:
    assert groundedness("Yeast makes gas.", QUESTION, []) == 0.0
