"""Folded thoughts: what stands before an answer is split off, in a text and in the pieces of a lane."""

from __future__ import annotations

import random

import pytest

from specrace.views.shown import Piece
from specrace.views.thoughts import describe_thoughts, fold_pieces, split_thoughts

# What stands before and after thoughts ("marks") differs between models; None if a model has none.
TEXT = "<think>\nFirst a thought.</think>\n\nThe answer follows."
PARTS = ("<think>\nFirst a thought.</think>", "The answer follows.")


@pytest.mark.parametrize(
    ("text", "marks", "parts"),
    [
        (TEXT, ("<think>", "</think>"), PARTS),
        (TEXT, ("", "</think>"), PARTS),
        (TEXT, ("<other>", "</other>"), ("", TEXT)),
        (TEXT, None, ("", TEXT)),
        ("<think>\nFirst", ("<think>", "</think>"), ("<think>\nFirst", "")),
        ("Yes. <think>No.</think>", ("<think>", "</think>"), ("", "Yes. <think>No.</think>")),
        ("", ("", "</think>"), ("", "")),
    ],
)
def test_thoughts_end_with_the_mark_after_them(
    text: str, marks: tuple[str, str] | None, parts: tuple[str, str]
) -> None:
    assert split_thoughts(text, marks) == parts


def test_pieces_are_cut_where_the_answer_begins() -> None:
    rng = random.Random(0)
    for _ in range(50):
        cuts = sorted(rng.sample(range(1, len(TEXT)), 4))
        starts, ends = [0, *cuts], [*cuts, len(TEXT)]
        pieces: list[Piece] = [
            [str(number), TEXT[start:end], 1] for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        thoughts, answer = fold_pieces(pieces, ("", "</think>"))
        assert (thoughts, "".join(piece[1] for piece in answer)) == PARTS
        # A piece is [kind, text, tokens]; here its kind is its number, so that a cut piece is compared with the whole.
        assert all(piece[1] and pieces[int(piece[0])][1].endswith(piece[1]) for piece in answer)
        assert fold_pieces(pieces, None) == ("", pieces)


def test_the_length_of_thoughts_is_told_in_words() -> None:
    assert describe_thoughts("<think>Hm.</think>") == "Thoughts: 1 word"
    assert describe_thoughts(PARTS[0]) == "Thoughts: 4 words"
