"""Copying from prompt and output and from outputs of earlier requests, and how well that worked in earlier answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specrace.drafters.fusion.calibration import Calibration
from specrace.drafters.fusion.holding import Holding
from specrace.ngrams.automaton import NO_MATCH, MatchState
from specrace.ngrams.backoff import BackoffModel
from specrace.ngrams.past import PROMPT_TAIL
from specrace.ngrams.suffix_index import END

# The escape mass is the probability left for tokens that did not follow the contexts so far. Once it is below this,
# shorter contexts are not looked up; that saves most of the time of a long copy.
MIN_ESCAPE = 0.1


@dataclass(frozen=True)
class Copies:
    """Back-off over prompt and output (`text`) and over earlier outputs (`past`), if any."""

    text: BackoffModel
    past: BackoffModel | None

    def estimate(self, match: MatchState, past_match: MatchState) -> tuple[dict[int, float], float, int]:
        """The next token's probabilities, the escape mass (left for unseen tokens), and the length for `Calibration`.

        `match` and `past_match` are (state, length) in the text and in earlier outputs. Contexts in earlier outputs
        that are longer than `match` come first, then the text's contexts, then the shorter ones in earlier outputs.
        """
        text, past, length = self.text, self.past, match[1]
        probs: dict[int, float] = {}
        mass, counted_length = 1.0, length
        if past is not None and past_match[1] > length:
            mass = past.blend(past_match, probs, mass, MIN_ESCAPE, length)
            counted_length = text.longest + past_match[1]
        mass = text.blend(match, probs, mass, MIN_ESCAPE)
        if past is not None and mass >= MIN_ESCAPE:
            mass = past.blend(past.automaton.shortened(past_match, length), probs, mass, MIN_ESCAPE)
        return probs, mass, counted_length


class EarlierAnswers:
    """What fusion learns from `PastOutputs`: outputs to copy from, and how well copying worked in each answer.

    `holding`: how often copies went on in each answer, relative to the estimates of a drafter that knew only earlier
    answers.
    """

    def __init__(self, longest: int) -> None:
        self.model = BackoffModel(longest)
        self.calibration = Calibration(longest)
        self.holding = Holding()

    def add(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Append an answer, after predicting each of its tokens from the text before that token and earlier answers."""
        past = self.model
        tail = prompt[max(0, len(prompt) - PROMPT_TAIL) :]
        text = BackoffModel(past.longest, prompt)
        copies = Copies(text, past)
        past_match = past.automaton.follow(NO_MATCH, prompt[-past.longest :])
        # Calibrated during this answer, as a drafter would be. `self.calibration` learns from it after the answer.
        calibration = Calibration(past.longest, self.calibration)
        outcomes: list[tuple[int, int, float, int]] = []
        holds = False
        for token in output:
            match = text.automaton.suffix()
            # If the prompt is unknown, it is also unknown which tokens the output copied.
            probs, mass, length = copies.estimate(match, past_match) if prompt else ({}, 1.0, 0)
            probs.pop(END, None)
            was_holding, holds = holds, False
            if probs:
                likeliest = max(probs, key=probs.__getitem__)
                outcomes.append((length, likeliest, probs[likeliest], token))
                calibration.revise_copy(length, probs, mass, likeliest)
                calibration.learn(*outcomes[-1])
                likeliest = max(probs, key=probs.__getitem__)
                holds = token == likeliest
                if was_holding:
                    self.holding.record(probs[likeliest], holds)
            text.automaton.extend((token,))
            past_match = past.automaton.follow(past_match, (token,))
        for outcome in outcomes:
            self.calibration.learn(*outcome)
        # As in `PastOutputs`, an output stands behind the last tokens of its prompt.
        past.automaton.extend((*tail, *output, END))
