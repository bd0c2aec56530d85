"""Folds the thoughts at the beginning of an answer, by the rule of the page's panes (`foldThoughts`)."""

from __future__ import annotations

from collections.abc import Sequence

from specrace.views.shown import Piece


def split_thoughts(text: str, marks: Sequence[str] | None) -> tuple[str, str]:
    """The thoughts at the beginning of a text, up to and including the mark after them, and the answer.

    `marks`: what stands before and after thoughts; the first is "" if a text begins with thoughts. A text that lacks
    the first mark, and any text without `marks`, has no thoughts; one that lacks the second mark has no answer yet.
    """
    if marks is None or not text.lstrip().startswith(marks[0]):
        return "", text
    index = text.find(marks[1])
    end = len(text) if index < 0 else index + len(marks[1])
    return text[:end], text[end:].lstrip()


def fold_pieces(pieces: Sequence[Piece], marks: Sequence[str] | None) -> tuple[str, list[Piece]]:
    """The thoughts at the beginning of a lane's text, and the pieces of its answer."""
    text = "".join(piece[1] for piece in pieces)
    thoughts, answer = split_thoughts(text, marks)
    # How many characters before the answer are still to be skipped.
    to_skip = len(text) - len(answer)
    answer_pieces: list[Piece] = []
    for kind, piece_text, *count_and_spans in pieces:
        if len(piece_text) > to_skip:
            answer_pieces.append([kind, piece_text[to_skip:], *count_and_spans])
        to_skip = max(0, to_skip - len(piece_text))
    return thoughts, answer_pieces


def describe_thoughts(thoughts: str) -> str:
    """The line that is shown in place of the thoughts: how many words they have."""
    count = len(thoughts.split())
    return f"Thoughts: {count} word{'' if count == 1 else 's'}"
