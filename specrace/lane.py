"""A lane: a drafter meets a session. The five lines of the loop, and the lane's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from specrace.drafters.base import Drafter
from specrace.events import Step, Timing
from specrace.tree import TokenTree
from specrace.verify import Scores, verify


class TargetSession(Protocol):
    """The model's side of a lane."""

    def score(self, tree: TokenTree) -> Scores:
        """The target's token at every node, by one forward."""

    def keep(self, path: Sequence[int]) -> None:
        """Settle the KV of the accepted nodes."""


class Lane:
    """One method's run. Its clock counts its own work only: draft, target, keep."""

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
        self.num_steps = 0
        self.end = "" if max_new_tokens > 0 else "length"

    @property
    def tokens(self) -> list[int]:
        """The output so far."""
        return self.context[self.num_prompt :]

    def step(self) -> Step:
        """One turn: propose, score, verify, keep, observe. Must not be called once `end` is set."""
        started = time.perf_counter()
        # A draft longer than what may still be said would be thrown away.
        budget = min(self.num_draft, self.num_draft if self.remaining > 1 else 0)
        tree = self.drafter.propose(self.context, budget).cut(budget)
        drafted = time.perf_counter()
        scores = self.session.score(tree)
        scored = time.perf_counter()
        verdict = verify(tree, scores)
        emitted = self._emit([*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus])
        self.session.keep(verdict.path)
        kept = time.perf_counter()
        self.drafter.observe(tree, verdict)
        done = time.perf_counter()
        timing = Timing(
            draft_ms=1000 * (drafted - started + done - kept),
            target_ms=1000 * (scored - drafted),
            keep_ms=1000 * (kept - scored),
        )
        self.at_ms += timing.total_ms
        step = Step(self.name, self.num_steps, self.at_ms, tree, verdict, emitted, timing, self.end)
        self.num_steps += 1
        return step

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.max_new_tokens - (len(self.context) - self.num_prompt)

    def _emit(self, tokens: list[int]) -> tuple[int, ...]:
        """Append the step's tokens, cut at the end-of-text token and at the length limit: the only place for either."""
        tokens = tokens[: self.remaining]
        for index, token in enumerate(tokens):
            if token in self.eos_ids:
                tokens = tokens[: index + 1]
                self.end = "eos"
                break
        self.context += tokens
        if not self.end and not self.remaining:
            self.end = "length"
        return tuple(tokens)
