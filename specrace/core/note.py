"""A drafter's details of one step: facts and rows of tokens. They are for display; no algorithm reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

# The limits of a note in a recording; guesses at what the page can show of a step.
MAX_FACTS = 8
MAX_ROWS = 24
MAX_ROW_TOKENS = 24
MAX_CHARACTERS = 80

Fact = int | float | str


@dataclass(frozen=True)
class NoteRow:
    """Tokens with a `label`, for example a row of a window or the likeliest continuations.

    `group`: the heading above all rows with the same group. `counts` has one entry for each token or is empty; `after`
    is the context under which the row was found. `pieces`, the text of each token, and `after_text`, the text of
    `after`, are filled in by a caller that has the tokenizer.
    """

    group: str
    label: str
    tokens: tuple[int, ...]
    counts: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    after_text: str = ""

    def __post_init__(self) -> None:
        for extra in (self.counts, self.pieces):
            if extra and len(extra) != len(self.tokens):
                raise ValueError("the counts and pieces of a note's row need one entry for each token")


@dataclass(frozen=True)
class Note:
    """`facts` by name, `rows` of tokens, and `counts`: one for each node of the tree (0 for the root), or none."""

    facts: Mapping[str, Fact] = field(default_factory=dict)
    rows: tuple[NoteRow, ...] = ()
    counts: tuple[int, ...] = ()

    def bounded(self) -> Note:
        """This note, cut to the limits of a recording."""
        facts = {
            name[:MAX_CHARACTERS]: fact[:MAX_CHARACTERS] if isinstance(fact, str) else fact
            for name, fact in list(self.facts.items())[:MAX_FACTS]
        }
        return replace(self, facts=facts, rows=tuple(map(_shorten, self.rows[:MAX_ROWS])))

    def with_texts(self, piece: Callable[[int], str]) -> Note:
        """This note with the texts of its tokens; `piece` gives the text of one."""
        rows = tuple(
            replace(row, pieces=tuple(map(piece, row.tokens)), after_text="".join(map(piece, row.after)))
            for row in self.rows
        )
        return replace(self, rows=rows)


def _shorten(row: NoteRow) -> NoteRow:
    return replace(
        row,
        group=row.group[:MAX_CHARACTERS],
        label=row.label[:MAX_CHARACTERS],
        **{name: getattr(row, name)[:MAX_ROW_TOKENS] for name in ("tokens", "counts", "after", "pieces")},
    )
