"""Generates with one method from Python, without a race."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.events import Step
from specrace.core.settings import MATCH
from specrace.engine.setup import RaceSetup, RaceTarget, read_prompt
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.ngrams.sources import Sources


def generate(
    target: RaceTarget,
    method: str,
    prompt: Sequence[int],
    *,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    num_draft: int | None = None,
    verifier: str = MATCH,
    sources: Sources = Sources(),  # noqa: B008  Sources is frozen
    curve: CostCurve | None = None,
    **options: Any,
) -> Iterator[Step]:
    """Yield the Steps of one method; their `emitted` tokens, joined, are the output.

    `sources` and `curve` have the same meaning as in `race`; `options` are the method's options. Raises InputError for
    bad settings, and for a prompt that does not fit the model.

    >>> tokens = [t for step in generate(target, "trie", ids, n=13) for t in step.emitted]  # doctest: +SKIP
    """
    spec = RaceSpec((method,), max_new_tokens, num_draft, temperature, top_p, top_k, seed, {method: options}, verifier)
    prompt_curve = None if curve is None else curve.near(len(prompt))  # the costs after a prompt of this length
    plan = plan_lane(spec, method, target.device_type, prompt_curve, chains_only=target.chains_only)
    target.check_length(len(prompt), spec.max_new_tokens, plan.num_draft)
    setup = RaceSetup(target, tuple(prompt), read_prompt(target, prompt, spec), spec, prompt_curve, sources)
    lane = setup.make_lane(method)
    while not lane.end:
        yield lane.step()
