"""Outputs of earlier requests, and the suffix automata of them that drafters share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.suffix_index import END

# Tokens of the prompt, of its chat template, that are kept with an output, so that drafters learn how outputs begin.
PROMPT_TAIL = 4


class PastOutputs:
    """The latest outputs, the oldest first; of more than `most` the older half is dropped.

    An automaton of them is built when a drafter first asks for its n, on that lane's clock, and then shared. Outputs
    are added between requests, as on a server, never during a race.
    """

    def __init__(self, outputs: Iterable[Sequence[int]] = (), most: int = 64) -> None:
        self.most = most
        self._answers: list[_Answer] = []
        self._automata: dict[int, SuffixAutomaton] = {}
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
            self._automata.clear()
        for automaton in self._automata.values():
            automaton.extend(self._answers[-1].text)

    def of_others(self, prompt: Sequence[int], question: str = "") -> PastOutputs:
        """The outputs of other prompts and, if given, other questions (case and spaces aside); `self` if all are.

        One question has another prompt when other passages were retrieved. Automata that were built are built again.
        """
        own, asked = tuple(prompt), _normalise(question)
        others = PastOutputs(most=self.most)
        others._answers = [
            each for each in self._answers if each.prompt != own and not (asked and each.question == asked)
        ]
        if len(others) == len(self):
            return self
        for n in self._automata:
            others.automaton(n)
        return others

    def copy(self) -> PastOutputs:
        """The same outputs and automata; an automaton built for one is not there for the other."""
        found = PastOutputs(most=self.most)
        found._answers, found._automata = list(self._answers), dict(self._automata)
        return found

    def automaton(self, n: int) -> SuffixAutomaton:
        """The automaton that counts substrings of up to `n` tokens, an END after each output. Read only."""
        if n not in self._automata:
            self._automata[n] = SuffixAutomaton(n, (token for answer in self._answers for token in answer.text))
        return self._automata[n]


@dataclass(frozen=True)
class _Answer:
    """An output, its prompt, and the normalised question."""

    output: tuple[int, ...]
    prompt: tuple[int, ...]
    question: str

    @property
    def text(self) -> tuple[int, ...]:
        """The tokens drafters match."""
        return (*self.prompt[-PROMPT_TAIL:], *self.output, END)


def _normalise(question: str) -> str:
    return " ".join(question.casefold().split())
