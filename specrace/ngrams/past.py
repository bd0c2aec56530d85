"""Outputs of earlier requests, and the indexes of them that drafters share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from specrace.core.clock import since_ms, thread_ms
from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.suffix_index import END

# An output is indexed after this many last tokens of its prompt, the end of the chat template, so that drafters learn
# how outputs begin.
PROMPT_TAIL = 4
# More indexes than a race of six lanes needs, each with one or two of its own settings.
MAX_INDEXES = 12


class Index(Protocol):
    """A structure in which drafters look up earlier outputs."""

    def extend(self, tokens: Sequence[int], /) -> None:
        """Append the tokens of one output."""


class AnswerIndex(Protocol):
    """A structure that learns from whole answers, prompt and output."""

    def add(self, prompt: Sequence[int], output: Sequence[int], /) -> None:
        """Append the prompt and the output of one answer."""


IndexT = TypeVar("IndexT", bound=Index)
AnswerIndexT = TypeVar("AnswerIndexT", bound=AnswerIndex)
# Identifies an index: its constructor, its settings, and how many of the prompt's last tokens are added before each
# output; None for an `AnswerIndex`, which gets the whole prompt as an argument of its own.
_Key = tuple[Callable[..., Any], tuple[Any, ...], int | None]


@dataclass
class Meter:
    """The time that the used indexes took, in ms.

    `used_ms`: the time spent so far on each index that was used, also for earlier requests. `built_ms`: the time to
    build the indexes that were missing.
    """

    used_ms: dict[_Key, float] = field(default_factory=dict)
    built_ms: float = 0.0


class PastOutputs:
    """The latest outputs, the oldest first. Beyond `max_outputs`, by default an untuned 64, the older half is dropped.

    An index of the outputs is built when a drafter first asks for it, and then shared; the `MAX_INDEXES` most recently
    used are kept. New outputs are added to the kept indexes, too: between requests, as on a server, and never during a
    race. All this work is done once for all requests, so it is on no lane's clock: a lane gets `metered` outputs, and
    the time that they measure is subtracted from its build time and reported separately.
    """

    def __init__(self, outputs: Iterable[Sequence[int]] = (), max_outputs: int = 64) -> None:
        self.max_outputs = max_outputs
        self._answers: list[_Answer] = []
        self._indexes: dict[_Key, Any] = {}
        # The time spent on each index so far.
        self._index_ms: dict[_Key, float] = {}
        # What the drafters with these outputs used and built.
        self.meter = Meter()
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
            self.drop_older_half()
            return
        for key, index in self._indexes.items():
            _, _, prompt_tail = key
            began = thread_ms()
            self._answers[-1].enter(index, prompt_tail)
            self._index_ms[key] += since_ms(began)

    def drop_older_half(self) -> None:
        """Drop the older half of the outputs, at least one, and build the indexes anew."""
        self._answers = self._answers[max(1, (len(self._answers) - 1) // 2) :]
        self._indexes = {key: self._build(key) for key in self._indexes}

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all prompts and outputs."""
        return sum(len(answer.prompt) + len(answer.output) for answer in self._answers)

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
        """A copy that shares the indexes built so far, but none that one of the two builds later."""
        copied = PastOutputs(max_outputs=self.max_outputs)
        copied._answers = list(self._answers)
        copied._indexes, copied._index_ms = dict(self._indexes), dict(self._index_ms)
        return copied

    def metered(self) -> PastOutputs:
        """A view that shares these outputs and their indexes, with a new `meter` that measures from now on."""
        metered = PastOutputs(max_outputs=self.max_outputs)
        metered._answers, metered._indexes, metered._index_ms = self._answers, self._indexes, self._index_ms
        return metered

    def automaton(self, n: int) -> SuffixAutomaton:
        """The automaton that counts substrings of up to `n` tokens. Read only."""
        return self.index(SuffixAutomaton, n)

    def index(self, make: Callable[..., IndexT], *settings: Any, prompt_tail: int = PROMPT_TAIL) -> IndexT:
        """The index `make(*settings)` of all outputs, each after the end of its prompt and before an END. Read only."""
        return cast(IndexT, self._shared((make, settings, prompt_tail)))

    def answers(self, make: Callable[..., AnswerIndexT], *settings: Any) -> AnswerIndexT:
        """The index `make(*settings)`, to which the prompt and output of each answer were added. Read only."""
        return cast(AnswerIndexT, self._shared((make, settings, None)))

    def _shared(self, key: _Key) -> Any:
        """The index with this key, which is built if it is missing; its time is noted in `meter`."""
        index = self._indexes.pop(key, None)
        if index is None:
            index = self._build(key)
            self.meter.built_ms += self._index_ms[key]
        self.meter.used_ms[key] = self._index_ms[key]
        # The most recently used index goes to the end. Visitors may ask for any settings, so the number is limited.
        self._indexes[key] = index
        if len(self._indexes) > MAX_INDEXES:
            oldest = next(iter(self._indexes))
            del self._indexes[oldest], self._index_ms[oldest]
        return index

    def _build(self, key: _Key) -> Any:
        """A new index of all outputs; its time is noted in `_index_ms`."""
        make, settings, prompt_tail = key
        began = thread_ms()
        index = make(*settings)
        for answer in self._answers:
            answer.enter(index, prompt_tail)
        self._index_ms[key] = since_ms(began)
        return index

    def latest(self, count: int) -> PastOutputs:
        """The latest `count` outputs; `self` if there are no more."""
        if len(self) <= count:
            return self
        latest = PastOutputs(max_outputs=self.max_outputs)
        latest._answers = self._answers[len(self) - count :]
        latest.meter = self.meter
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
    """The question without differences in case and spaces."""
    return " ".join(question.casefold().split())
