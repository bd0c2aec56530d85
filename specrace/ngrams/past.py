"""Outputs of earlier requests, and the suffix automata of them that drafters share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.suffix_index import END

# Tokens of the prompt, of its chat template, that are kept with an output, so that drafters learn how outputs begin.
PROMPT_TAIL = 4
# More than any race asks for.
MAX_KINDS = 12


class Index(Protocol):
    """What drafters look outputs up in."""

    def extend(self, tokens: Sequence[int], /) -> None:
        """Append the tokens of one output."""


class AnswerIndex(Protocol):
    """What drafters learn from whole answers."""

    def add(self, prompt: Sequence[int], output: Sequence[int], /) -> None:
        """Append the prompt and the output of one answer."""


I = TypeVar("I", bound=Index)  # noqa: E741
A = TypeVar("A", bound=AnswerIndex)
# How an index is made, its settings, and the length of the prompt's end that goes with an output; None: all, apart.
_Key = tuple[Callable[..., Any], tuple[Any, ...], int | None]


class PastOutputs:
    """The latest outputs, the oldest first; of more than `most` the older half is dropped.

    An index of them is built when a drafter first asks for its kind, on that lane's clock, and then shared; those of
    the latest `MAX_KINDS` kinds are kept. Outputs are added between requests, as on a server, never during a race; so
    are they to the indexes.
    """

    def __init__(self, outputs: Iterable[Sequence[int]] = (), most: int = 64) -> None:
        self.most = most
        self._answers: list[_Answer] = []
        self._indexes: dict[_Key, Any] = {}
        for output in outputs:
            self.add(output)

    @classmethod
    def of(cls, outputs: Iterable[Sequence[int]]) -> PastOutputs:
        """`outputs` if they are PastOutputs, with the automata already built; else made of plain tokens."""
        return outputs if isinstance(outputs, PastOutputs) else cls(outputs)

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (each.output for each in self._answers)

    def add(self, output: Sequence[int], prompt: Sequence[int] = (), question: str = "") -> None:
        """Append an output, the `prompt` that it answered, and the `question` in it if known."""
        self._answers.append(_Answer(tuple(output), tuple(prompt), _normalise(question)))
        if len(self._answers) > self.most:
            self._answers = self._answers[self.most // 2 :]
            self._indexes = {key: self._build(key) for key in self._indexes}
            return
        for (_, _, prompt_tail), index in self._indexes.items():
            self._answers[-1].enter(index, prompt_tail)

    def of_others(self, prompt: Sequence[int], question: str = "") -> PastOutputs:
        """The outputs of other prompts and, if given, other questions (case and spaces aside); `self` if all are.

        One question has another prompt when other passages were retrieved. Indexes that were built are built again.
        """
        own, asked = tuple(prompt), _normalise(question)
        others = PastOutputs(most=self.most)
        others._answers = [
            each for each in self._answers if each.prompt != own and not (asked and each.question == asked)
        ]
        if len(others) == len(self):
            return self
        others._indexes = {key: others._build(key) for key in self._indexes}
        return others

    def copy(self) -> PastOutputs:
        """The same outputs and indexes; an index built for one is not there for the other."""
        found = PastOutputs(most=self.most)
        found._answers, found._indexes = list(self._answers), dict(self._indexes)
        return found

    def automaton(self, n: int) -> SuffixAutomaton:
        """The automaton that counts substrings of up to `n` tokens. Read only."""
        return self.index(SuffixAutomaton, n)

    def index(self, make: Callable[..., I], *settings: Any, prompt_tail: int = PROMPT_TAIL) -> I:
        """`make(*settings)` extended by each output, the prompt's end before it and an END after it. Read only."""
        return cast(I, self._shared((make, settings, prompt_tail)))

    def answers(self, make: Callable[..., A], *settings: Any) -> A:
        """`make(*settings)`, to which the prompt and the output of each answer were added. Read only."""
        return cast(A, self._shared((make, settings, None)))

    def _shared(self, key: _Key) -> Any:
        found = self._indexes.pop(key, None)
        # The latest last: visitors may ask for any settings.
        self._indexes[key] = found = self._build(key) if found is None else found
        if len(self._indexes) > MAX_KINDS:
            del self._indexes[next(iter(self._indexes))]
        return found

    def _build(self, key: _Key) -> Any:
        make, settings, prompt_tail = key
        found = make(*settings)
        for answer in self._answers:
            answer.enter(found, prompt_tail)
        return found

    def latest(self, most: int) -> PastOutputs:
        """The latest `most` outputs; `self` if there are no more."""
        if len(self) <= most:
            return self
        found = PastOutputs(most=self.most)
        found._answers = self._answers[len(self) - most :]
        return found


@dataclass(frozen=True)
class _Answer:
    """An output, its prompt, and the normalised question."""

    output: tuple[int, ...]
    prompt: tuple[int, ...]
    question: str

    def text(self, prompt_tail: int) -> tuple[int, ...]:
        """The tokens drafters match, the last `prompt_tail` of the prompt first."""
        return (*self.prompt[max(0, len(self.prompt) - prompt_tail) :], *self.output, END)

    def enter(self, index: Any, prompt_tail: int | None) -> None:
        """Add this answer to an index."""
        if prompt_tail is None:
            index.add(self.prompt, self.output)
        else:
            index.extend(self.text(prompt_tail))


def _normalise(question: str) -> str:
    return " ".join(question.casefold().split())
