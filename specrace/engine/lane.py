"""A lane: a drafter meets a session. The five lines of the loop, and the lane's clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np

from specrace.core.clock import own_ms
from specrace.core.cost_curve import CostCurve, pad_rows
from specrace.core.events import Step, Timing
from specrace.core.note import Note
from specrace.core.rejection import Check, Coins, verify_sampled
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict, verify
from specrace.drafters.base import Drafter, DrafterWithNotes, SamplingDrafter, draft
from specrace.engine.pace import PaceKeeper


class TargetSession(Protocol):
    """The model's side of a lane."""

    def score(self, tree: TokenTree) -> Scores:
        """The target's token at every node, by one forward."""

    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        """The target's warped distribution at every node, float64 [N, V], by one forward."""

    def keep(self, path: Sequence[int]) -> None:
        """Settle the KV of the accepted nodes."""


class Lane:
    """One method's run. Its clock counts its own work only: draft, target, keep.

    Time in which the thread waited for a processor is not on it, and with a `pace` it runs as if the machine were as
    fast all the time as before the first step.
    With `coins` a draft is verified by rejection sampling, and the drafter must be a `SamplingDrafter`. With a `curve`
    a tree whose rows cost more than a few rows more (in float32 a CPU takes longer over two or three than over four)
    is scored with so many, as far as the lane's own `num_draft` allows.
    """

    def __init__(
        self,
        name: str,
        drafter: Drafter,
        session: TargetSession,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        num_draft: int,
        eos_ids: frozenset[int] = frozenset(),
        build_ms: float = 0.0,
        coins: Coins | None = None,
        curve: CostCurve | None = None,
        pace: PaceKeeper | None = None,
    ) -> None:
        self.name = name
        self.drafter = drafter
        self.session = session
        self.context = list(prompt)
        self.num_prompt = len(prompt)
        self.max_new_tokens = max_new_tokens
        self.num_draft = num_draft
        self.eos_ids = eos_ids
        self.at_ms = build_ms
        self.coins = coins
        self.curve = curve
        self.pace = pace
        self._teller = drafter if isinstance(drafter, DrafterWithNotes) else None
        self.num_steps = 0
        self.end = "" if max_new_tokens > 0 else "length"

    @property
    def tokens(self) -> list[int]:
        """The output so far."""
        return self.context[self.num_prompt :]

    def step(self) -> Step:
        """One turn: propose, score, verify, keep, observe. Must not be called once `end` is set."""
        started = own_ms()
        tree = draft(self.drafter, self.context, self.num_draft, self.remaining)
        drafted = own_ms()
        note = self._note(tree)  # for show, so off the clock; the drafter learns from the step later
        asked = own_ms()
        said = self._score(tree)
        scored = own_ms()
        verdict, checks = self._verify(tree, said)
        emitted = self._emit(verdict.output(tree))
        self.session.keep(verdict.path)
        kept = own_ms()
        self.drafter.observe(tree, verdict)
        done = own_ms()
        parts = (drafted - started + done - kept, scored - asked, kept - scored)
        # Below 0 where the system came in between the two readings of which a time is made.
        timing = Timing(*(max(0.0, part) for part in parts))
        if self.pace is not None:
            timing = self.pace.correct(self.name, len(tree), timing)
        self.at_ms += timing.total_ms
        at = (self.name, self.num_steps, self.at_ms)
        step = Step(*at, tree, verdict, emitted, timing, self.end, checks=checks, note=note)
        self.num_steps += 1
        return step

    def _score(self, tree: TokenTree) -> Scores | np.ndarray:
        """What the target says at every node; rows that only fill up are run and forgotten."""
        size = len(tree)
        filled = tree if self.curve is None else tree.padded(pad_rows(self.curve, size, self.num_draft + 1))
        if self.coins is not None:
            return self.session.score_distributions(filled)[:size]
        scores = self.session.score(filled)
        return Scores(scores.targets[:size], None if scores.top is None else scores.top[:size])

    def _note(self, tree: TokenTree) -> Note | None:
        """What the drafter tells of its draft; most tell nothing."""
        return None if self._teller is None else self._teller.note(tree).bounded()

    def _verify(self, tree: TokenTree, said: Scores | np.ndarray) -> tuple[Verdict, tuple[Check, ...] | None]:
        """The lane's verifier, and under rejection sampling how each draft token was judged."""
        if isinstance(said, Scores):
            return verify(tree, said), None
        assert self.coins is not None, "distributions were asked for"
        q = cast(SamplingDrafter, self.drafter).distributions()[: tree.num_draft]
        coins = [self.coins.at(len(self.context) + depth) for depth in tree.depths]
        return verify_sampled(tree, said, q, coins)

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.max_new_tokens - (len(self.context) - self.num_prompt)

    def _emit(self, tokens: list[int]) -> tuple[int, ...]:
        """Append the step's tokens, cut at the end-of-text token and at the length limit: the only place for either."""
        remaining = self.remaining
        if len(tokens) >= remaining:
            tokens, self.end = tokens[:remaining], "length"
        for index, token in enumerate(tokens):
            if token in self.eos_ids:
                tokens, self.end = tokens[: index + 1], "eos"
                break
        self.context += tokens
        return tuple(tokens)
