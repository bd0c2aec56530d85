"""A lane: a drafter, a model session, the decoding loop, and the lane's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Protocol, cast

import numpy as np

from specrace.core.clock import thread_ms
from specrace.core.cost_curve import CostCurve, pad_rows
from specrace.core.events import Step, Timing
from specrace.core.multi_branch import Verified, verify_draws
from specrace.core.rejection import Coins, verify_sampled
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, verify
from specrace.drafters.base import Drafter, DrafterWithNotes, SamplingDrafter, TreeSamplingDrafter, draft
from specrace.drafters.sessions import MaskingHeadSession
from specrace.engine.pace import PaceKeeper


class TargetSession(Protocol):
    """The part of a model session that a lane uses."""

    def score(self, tree: TokenTree) -> Scores:
        """The target's token at every node, computed in one forward."""

    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        """The target's warped distribution at every node, float64 [N, V], computed in one forward."""

    def keep(self, path: Sequence[int]) -> None:
        """Keep the keys and values of the accepted nodes, and drop those of all others."""


@dataclass(eq=False)
class Lane:
    """One method, decoding one prompt. Its clock `at_ms` counts the time of its steps: draft, target and keep.

    The clock does not count time spent waiting for a processor. With a `pace`, times are corrected to the pace before
    the first step. `build_ms` is on the clock; `shared_ms`, the time of indexes of earlier answers, which a server
    builds once for all requests, is not. With `coins`, its random numbers, drafts are verified by rejection sampling,
    and the drafter must be a `SamplingDrafter` or a `TreeSamplingDrafter`. With a `curve`, a tree is padded up to the
    lane's `num_draft` if more rows are cheaper: on a CPU, a float32 forward over 2 or 3 rows is slower than one over 4.
    With `chains_only`, trees are cut to their best branch. `masking`: the head that adds masks, which are rows and not
    nodes, below every node of a tree. `end` is "" while the lane runs, then "eos" or "length".
    """

    name: str
    drafter: Drafter
    session: TargetSession
    prompt: InitVar[Sequence[int]]
    _: KW_ONLY
    max_new_tokens: int
    num_draft: int
    eos_ids: frozenset[int] = frozenset()
    build_ms: InitVar[float] = 0.0
    shared_ms: float = 0.0
    coins: Coins | None = None
    curve: CostCurve | None = None
    pace: PaceKeeper | None = None
    chains_only: bool = False
    masking: MaskingHeadSession | None = None

    def __post_init__(self, prompt: Sequence[int], build_ms: float) -> None:
        self.context = list(prompt)
        self.num_prompt = len(prompt)
        self.at_ms = build_ms
        self._drafter_with_notes = self.drafter if isinstance(self.drafter, DrafterWithNotes) else None
        self.num_steps = 0
        self.end = "" if self.max_new_tokens > 0 else "length"

    @property
    def tokens(self) -> list[int]:
        """The output so far."""
        return self.context[self.num_prompt :]

    def step(self) -> Step:
        """Take one step: propose, score, verify, keep, observe. Must not be called once `end` is set."""
        started = thread_ms()  # this and the other times below are in ms
        tree = draft(self.drafter, self.context, self.num_draft, self.remaining)
        if self.chains_only:
            tree = tree.best_chain()
        drafted = thread_ms()
        # The note is for display only, so it is off the clock. It is made before `observe` changes the drafter.
        note = None if self._drafter_with_notes is None else self._drafter_with_notes.note(tree).bounded()
        noted = thread_ms()
        scores = self._score(tree)
        scored = thread_ms()
        verified = self._verify(tree, scores)
        verdict = verified.verdict
        emitted = self._emit(verdict.output(tree))
        self.session.keep(verdict.path)
        kept = thread_ms()
        self.drafter.observe(tree, verdict)
        done = thread_ms()
        # The draft's time includes `observe`. Differences of thread times can be slightly negative
        # (see `specrace.core.clock.since_ms`).
        timing = Timing(
            draft_ms=max(0.0, drafted - started + done - kept),
            target_ms=max(0.0, scored - noted),
            keep_ms=max(0.0, kept - scored),
        )
        if self.pace is not None:
            rows = len(tree) if self.masking is None else len(tree) * (1 + self.masking.num_masks)
            timing = self.pace.correct(self.name, rows, timing)
        self.at_ms += timing.total_ms
        step = Step(
            self.name,
            self.num_steps,
            self.at_ms,
            tree,
            verdict,
            emitted,
            timing,
            self.end,
            checks=verified.checks,
            checked_nodes=verified.nodes,
            note=note,
        )
        self.num_steps += 1
        return step

    def _score(self, tree: TokenTree) -> Scores | np.ndarray:
        """The target's scores at every node; those of padding rows are left out."""
        size = len(tree)
        padded = tree if self.curve is None else tree.padded(pad_rows(self.curve, size, self.num_draft + 1))
        if self.coins is not None:
            return self.session.score_distributions(padded)[:size]
        scores = self.session.score(padded)
        return Scores(scores.targets[:size], None if scores.top is None else scores.top[:size])

    def _verify(self, tree: TokenTree, scores: Scores | np.ndarray) -> Verified:
        """The verdict; under rejection sampling also the check of each draft token that was tested."""
        if isinstance(scores, Scores):
            return Verified(verify(tree, scores))
        assert self.coins is not None
        # The position of the root's children; each depth draws with the random numbers of its position.
        base = len(self.context)
        if isinstance(self.drafter, TreeSamplingDrafter):
            draws = self.drafter.draws()
            depths = range(max(tree.depths) + 1)
            return verify_draws(
                tree, scores, draws, [self.coins.for_draws(base + depth, len(draws.nodes)) for depth in depths]
            )
        q = cast(SamplingDrafter, self.drafter).distributions()[: tree.num_draft]
        return Verified(*verify_sampled(tree, scores, q, [self.coins.at(base + depth) for depth in tree.depths]))

    @property
    def remaining(self) -> int:
        """The number of tokens that may still be emitted."""
        return self.max_new_tokens - (len(self.context) - self.num_prompt)

    def _emit(self, tokens: list[int]) -> tuple[int, ...]:
        """Append the step's tokens, cut at an end-of-text token and at the length limit, and return them."""
        remaining = self.remaining
        if len(tokens) >= remaining:
            tokens, self.end = tokens[:remaining], "length"
        for index, token in enumerate(tokens):
            if token in self.eos_ids:
                tokens, self.end = tokens[: index + 1], "eos"
                break
        self.context += tokens
        return tuple(tokens)
