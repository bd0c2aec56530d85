"""Outputs of earlier requests, and the indexes of them that drafters share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.suffix_index import END

# This many tokens of the prompt's end, its chat template, are kept with an output: drafters learn how outputs begin.
PROMPT_TAIL = 4
# More indexes than any race needs.
MAX_INDEXES = 12


class Index(Protocol):
    """A structure in which drafters look up earlier outputs."""

    def extend(self, tokens: Sequence[int], /) -> None:
        """Append the tokens of one output."""


class AnswerIndex(Protocol):
    """A structure that learns from whole answers, prompt and output."""

    def add(self, prompt: Sequence[int], output: Sequence[int], /) -> None:
        """Append the prompt and the output of one answer."""


I = TypeVar("I", bound=Index)  # noqa: E741
A = TypeVar("A", bound=AnswerIndex)
# The constructor of an index, its settings, and how many of the prompt's last tokens go in before each output; None for
# an `AnswerIndex`, which gets the whole prompt separately.
_Key = tuple[Callable[..., Any], tuple[Any, ...], int | None]


class PastOutputs:
    """The latest outputs, the oldest first. Beyond `max_outputs` the older half is dropped.

    An index of the outputs is built, on a lane's clock, when a drafter first asks for it, and then shared; the
    `MAX_INDEXES` most recently used are kept. New outputs are added to these, too, between requests, as on a server,
    and never during a race.
    """

    def __init__(self, outputs: Iterable[Sequence[int]] = (), max_outputs: int = 64) -> None:
        self.max_outputs = max_outputs
        self._answers: list[_Answer] = []
        self._indexes: dict[_Key, Any] = {}
        for output in outputs:
            self.add(output)

    @classmethod
    def of(cls, outputs: Iterable[Sequence[int]]) -> PastOutputs:
        """`outputs` themselves if they are PastOutputs, with the indexes already built; else new ones made of them."""
        return outputs if isinstance(outputs, PastOutputs) else cls(outputs)

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (answer.output for answer in self._answers)

    def add(self, output: Sequence[int], prompt: Sequence[int] = (), question: str = "") -> None:
        """Append an output, the `prompt` that it answered, and the `question` in that prompt if known."""
        self._answers.append(_Answer(tuple(output), tuple(prompt), _normalise(question)))
        if len(self._answers) > self.max_outputs:
            self._answers = self._answers[self.max_outputs // 2 :]
            self._indexes = {key: self._build(key) for key in self._indexes}
            return
        for (_, _, prompt_tail), index in self._indexes.items():
            self._answers[-1].enter(index, prompt_tail)

    def excluding(self, prompt: Sequence[int], question: str = "") -> PastOutputs:
        """The outputs without those of this prompt or, if given, this question; `self` if that leaves out none.

        The same question may have been asked with another prompt, when other passages were retrieved. Case and spaces
        of the question do not matter. Indexes that exist are built anew for the outputs that remain.
        """
        excluded_prompt, excluded_question = tuple(prompt), _normalise(question)
        remaining = PastOutputs(max_outputs=self.max_outputs)
        remaining._answers = [
            answer
            for answer in self._answers
            if answer.prompt != excluded_prompt and not (excluded_question and answer.question == excluded_question)
        ]
        if len(remaining) == len(self):
            return self
        remaining._indexes = {key: remaining._build(key) for key in self._indexes}
        return remaining

    def copy(self) -> PastOutputs:
        """A copy that shares the indexes built so far, but none that either builds later."""
        copied = PastOutputs(max_outputs=self.max_outputs)
        copied._answers = list(self._answers)
        copied._indexes = dict(self._indexes)
        return copied

    def automaton(self, n: int) -> SuffixAutomaton:
        """The automaton that counts substrings of up to `n` tokens. Read only."""
        return self.index(SuffixAutomaton, n)

    def index(self, make: Callable[..., I], *settings: Any, prompt_tail: int = PROMPT_TAIL) -> I:
        """The index `make(*settings)` of all outputs, each after the end of its prompt and before an END. Read only."""
        return cast(I, self._shared((make, settings, prompt_tail)))

    def answers(self, make: Callable[..., A], *settings: Any) -> A:
        """The index `make(*settings)`, to which the prompt and output of each answer were added. Read only."""
        return cast(A, self._shared((make, settings, None)))

    def _shared(self, key: _Key) -> Any:
        index = self._indexes.pop(key, None)
        if index is None:
            index = self._build(key)
        # The most recently used goes to the end; visitors may ask for any settings, so the first is dropped.
        self._indexes[key] = index
        if len(self._indexes) > MAX_INDEXES:
            del self._indexes[next(iter(self._indexes))]
        return index

    def _build(self, key: _Key) -> Any:
        make, settings, prompt_tail = key
        index = make(*settings)
        for answer in self._answers:
            answer.enter(index, prompt_tail)
        return index

    def latest(self, count: int) -> PastOutputs:
        """The latest `count` outputs; `self` if there are no more."""
        if len(self) <= count:
            return self
        latest = PastOutputs(max_outputs=self.max_outputs)
        latest._answers = self._answers[len(self) - count :]
        return latest


@dataclass(frozen=True)
class _Answer:
    """An output, its prompt, and the normalised question."""

    output: tuple[int, ...]
    prompt: tuple[int, ...]
    question: str

    def text(self, prompt_tail: int) -> tuple[int, ...]:
        """The tokens that drafters match: the last `prompt_tail` of the prompt, the output, and an END."""
        return (*self.prompt[max(0, len(self.prompt) - prompt_tail) :], *self.output, END)

    def enter(self, index: Any, prompt_tail: int | None) -> None:
        """Add this answer to an index."""
        if prompt_tail is None:
            index.add(self.prompt, self.output)
        else:
            index.extend(self.text(prompt_tail))


def _normalise(question: str) -> str:
    return " ".join(question.casefold().split())
