"""What a drafter tells of a step, for show: facts, and rows of tokens. No algorithm reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MAX_FACTS = 8
MAX_ROWS = 24
MAX_ROW_TOKENS = 24
MAX_CHARACTERS = 80

Fact = int | float | str


@dataclass(frozen=True)
class NoteRow:
    """Some tokens under the heading `group`, e.g. a row of a window or the likeliest continuations.

    `counts` has one entry a token, or none; `after` are the tokens that the row was looked up by. `pieces` and
    `after_text` are their texts, filled in by whoever has the tokenizer.
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
                raise ValueError("the counts and pieces of a note's row need one entry a token")


@dataclass(frozen=True)
class Note:
    """`facts` by name, `rows` of tokens, and `counts`, one a node of the step's tree (the root's is 0), or none."""

    facts: Mapping[str, Fact] = field(default_factory=dict)
    rows: tuple[NoteRow, ...] = ()
    counts: tuple[int, ...] = ()

    def bounded(self) -> Note:
        """The same, cut to what a recording has room for."""
        facts = {name[:MAX_CHARACTERS]: _cut(fact) for name, fact in list(self.facts.items())[:MAX_FACTS]}
        return replace(self, facts=facts, rows=tuple(_shorten(row) for row in self.rows[:MAX_ROWS]))

    def told(self, piece: Callable[[int], str]) -> Note:
        """The same with texts; `piece` is the text of a token."""
        rows = tuple(
            replace(row, pieces=tuple(map(piece, row.tokens)), after_text="".join(map(piece, row.after)))
            for row in self.rows
        )
        return replace(self, rows=rows)


def note_from_json(row: Mapping[str, Any], size: int) -> Note:
    """The note that `dataclasses.asdict` made a dict of, about a tree of `size` nodes.

    Raises ValueError, TypeError or KeyError for anything else.
    """
    facts = {str(name): fact for name, fact in row["facts"].items()}
    if not all(isinstance(fact, int | float | str) for fact in facts.values()):
        raise ValueError("a note's fact is neither a number nor a text")
    if len(facts) > MAX_FACTS or len(row["rows"]) > MAX_ROWS:
        raise ValueError("a note has more facts or rows than any drafter tells")
    counts = _ints(row["counts"])
    if len(counts) not in (0, size):
        raise ValueError(f"{len(counts)} counts for {size} nodes")
    return Note(facts, tuple(_row(each) for each in row["rows"]), counts)


def _cut(fact: Fact) -> Fact:
    return fact[:MAX_CHARACTERS] if isinstance(fact, str) else fact


def _row(row: Mapping[str, Any]) -> NoteRow:
    return NoteRow(
        group=str(row["group"]),
        label=str(row["label"]),
        tokens=_ints(row["tokens"]),
        counts=_ints(row["counts"]),
        after=_ints(row["after"]),
        pieces=tuple(map(str, row["pieces"])),
        after_text=str(row["after_text"]),
    )


def _ints(values: Iterable[Any]) -> tuple[int, ...]:
    numbers = tuple(values)
    if not all(type(number) is int for number in numbers):
        raise ValueError("a note's token or count is no whole number")
    return numbers


def _shorten(row: NoteRow) -> NoteRow:
    def first(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[:MAX_ROW_TOKENS])

    return NoteRow(
        group=row.group[:MAX_CHARACTERS],
        label=row.label[:MAX_CHARACTERS],
        tokens=first(row.tokens),
        counts=first(row.counts),
        after=first(row.after),
        pieces=first(row.pieces),
        after_text=row.after_text,
    )
