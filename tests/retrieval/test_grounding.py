"""Groundedness: an answer's worst sentence decides."""

from __future__ import annotations

import pytest

from specrace.retrieval.grounding import GROUNDED, groundedness

PASSAGES = ["Bread rises because yeast makes carbon dioxide.", "The gas is caught by gluten, a protein of wheat."]
QUESTION = "Why does bread rise?"


@pytest.mark.parametrize(
    ("answer", "share"),
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
        "copied",
        "one sentence made up",
        "the question's words",
        "stems count",
        "cites",
        "cites after it",
        "empty",
        "blank",
    ],
)
def test_the_share_of_the_worst_sentence(answer: str, share: float) -> None:
    assert groundedness(answer, QUESTION, PASSAGES) == pytest.approx(share)
    assert (share >= GROUNDED) == (share == 1.0)


def test_nothing_is_grounded_in_no_passage() -> None:
    assert groundedness("Yeast makes gas.", QUESTION, []) == 0.0
