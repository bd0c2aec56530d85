"""Outputs of earlier requests, and the automata of them that drafters share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from specrace.ngrams.automaton import SuffixAutomaton
from specrace.ngrams.suffix_index import END

# Of its prompt an output remembers the last few tokens, those of the chat template, so that drafters learn how outputs
# begin.
PROMPT_TAIL = 4


class PastOutputs:
    """The latest outputs, the oldest first: of more than `most` the older half is forgotten.

    An automaton of them is built when a drafter first asks for its n, on that lane's clock, and shared from then on.
    What is added later extends it between two requests, as a server would do it once an answer is out; nothing changes
    it while a race runs.
    """

    def __init__(self, outputs: Iterable[Sequence[int]] = (), most: int = 64) -> None:
        self.most = most
        self._answers: list[_Answer] = []
        self._automata: dict[int, SuffixAutomaton] = {}
        for output in outputs:
            self.add(output)

    @classmethod
    def of(cls, outputs: Iterable[Sequence[int]]) -> PastOutputs:
        """`outputs` themselves, with the automata they have, or made of plain tokens."""
        return outputs if isinstance(outputs, PastOutputs) else cls(outputs)

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (each.output for each in self._answers)

    def add(self, output: Sequence[int], prompt: Sequence[int] = (), question: str = "") -> None:
        """Remember one more output, the `prompt` that it answered, and the `question` in it where that is known."""
        self._answers.append(_Answer(tuple(output), tuple(prompt), _words(question)))
        if len(self._answers) > self.most:
            self._answers = self._answers[self.most // 2 :]
            self._automata.clear()
        for known in self._automata.values():
            known.extend(self._answers[-1].text)

    def of_others(self, prompt: Sequence[int], question: str = "") -> PastOutputs:
        """Those that answered another prompt and, where it is given, another question: these very ones where all did.

        A question is the same in other letters too, and its prompt is another one with other passages. What lanes have
        asked for before is ready in either case.
        """
        own, asked = tuple(prompt), _words(question)
        others = PastOutputs(most=self.most)
        others._answers = [
            each for each in self._answers if each.prompt != own and not (asked and each.question == asked)
        ]
        if len(others) == len(self):
            return self
        for n in self._automata:
            others.automaton(n)
        return others

    def automaton(self, n: int) -> SuffixAutomaton:
        """Their n-grams of up to `n` tokens; an END follows each output. Only to be read."""
        if n not in self._automata:
            known = self._automata[n] = SuffixAutomaton(n)
            for answer in self._answers:
                known.extend(answer.text)
        return self._automata[n]


@dataclass(frozen=True)
class _Answer:
    """An output and what it answered."""

    output: tuple[int, ...]
    prompt: tuple[int, ...]
    question: str

    @property
    def text(self) -> tuple[int, ...]:
        """What drafters read of it."""
        return (*self.prompt[-PROMPT_TAIL:], *self.output, END)


def _words(question: str) -> str:
    return " ".join(question.casefold().split())
