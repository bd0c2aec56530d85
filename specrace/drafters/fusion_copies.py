"""Copying from prompt and output and from outputs of earlier requests, and how that went in earlier answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specrace.drafters.fusion_calibration import Calibration
from specrace.ngrams.automaton import NO_MATCH, MatchState
from specrace.ngrams.backoff import BackoffModel
from specrace.ngrams.past import PROMPT_TAIL
from specrace.ngrams.suffix_index import END

# Below this escape mass shorter contexts are not looked up, which saves most of the time of a long copy.
ENOUGH = 0.1


@dataclass(frozen=True)
class Copies:
    """Back-off over prompt and output (`own`) and over earlier outputs (`past`), if any."""

    own: BackoffModel
    past: BackoffModel | None

    def estimate(self, match: MatchState, past_match: MatchState) -> tuple[dict[int, float], float, int]:
        """(probabilities, escape mass, length for `Calibration`) after a context in the text and in earlier outputs.

        Contexts of earlier outputs longer than the text's go before it, the others after it.
        """
        own, past, length = self.own, self.past, match[1]
        probs: dict[int, float] = {}
        mass, longest = 1.0, length
        if past is not None and past_match[1] > length:
            mass = past.blend(past_match, probs, mass, ENOUGH, length)
            longest = own.longest + past_match[1]
        mass = own.blend(match, probs, mass, ENOUGH)
        if past is not None and mass >= ENOUGH:
            mass = past.blend(past.automaton.shortened(past_match, length), probs, mass, ENOUGH)
        return probs, mass, longest


class EarlierAnswers:
    """What `PastOutputs` keeps for fusion: outputs to copy from, and what became of copies in each answer."""

    def __init__(self, longest: int) -> None:
        self.model = BackoffModel(longest)
        self.calibration = Calibration(longest)

    def add(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Append an answer; each of its tokens is predicted by its prompt, the tokens before it and earlier answers."""
        past, tail = self.model, prompt[max(0, len(prompt) - PROMPT_TAIL) :]
        own = BackoffModel(past.longest, prompt)
        copies, past_match = Copies(own, past), past.automaton.follow(NO_MATCH, prompt[-past.longest :])
        for token in output:
            match = own.automaton.suffix()
            # Without its prompt an output says nothing of copies.
            probs, _, length = copies.estimate(match, past_match) if prompt else ({}, 1.0, 0)
            probs.pop(END, None)
            if probs:
                likeliest = max(probs, key=probs.__getitem__)
                self.calibration.learn(length, likeliest, probs[likeliest], token)
            own.automaton.extend((token,))
            past_match = past.automaton.follow(past_match, (token,))
        past.automaton.extend((*tail, *output, END))
