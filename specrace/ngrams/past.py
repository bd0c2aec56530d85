"""Outputs of earlier requests, and the automata of them that drafters share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
        self._outputs: list[tuple[int, ...]] = []
        self._prompts: list[tuple[int, ...]] = []
        self._automata: dict[int, SuffixAutomaton] = {}
        for output in outputs:
            self.add(output)

    @classmethod
    def of(cls, outputs: Iterable[Sequence[int]]) -> PastOutputs:
        """`outputs` themselves, with the automata they have, or made of plain tokens."""
        return outputs if isinstance(outputs, PastOutputs) else cls(outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self._outputs)

    def add(self, output: Sequence[int], prompt: Sequence[int] = ()) -> None:
        """Remember one more output, and the `prompt` that it answered."""
        self._outputs.append(tuple(output))
        self._prompts.append(tuple(prompt))
        if len(self._outputs) > self.most:
            self._outputs, self._prompts = self._outputs[self.most // 2 :], self._prompts[self.most // 2 :]
            self._automata.clear()
        for known in self._automata.values():
            known.extend(_text(prompt, output))

    def of_others(self, prompt: Sequence[int]) -> PastOutputs:
        """Those that answered another prompt: these very ones where all did."""
        if tuple(prompt) not in self._prompts:
            return self
        others = PastOutputs(most=self.most)
        for other, output in zip(self._prompts, self._outputs, strict=True):
            if other != tuple(prompt):
                others.add(output, other)
        return others

    def automaton(self, n: int) -> SuffixAutomaton:
        """Their n-grams of up to `n` tokens; an END follows each output. Only to be read."""
        if n not in self._automata:
            known = self._automata[n] = SuffixAutomaton(n)
            for prompt, output in zip(self._prompts, self._outputs, strict=True):
                known.extend(_text(prompt, output))
        return self._automata[n]


def _text(prompt: Sequence[int], output: Sequence[int]) -> tuple[int, ...]:
    return (*prompt[-PROMPT_TAIL:], *output, END)
