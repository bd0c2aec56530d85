"""Forced decoding: what a drafter would have saved on text that is already written. No model runs.

The transcript is the truth. As in a race, the first step's root is the prompt's last token; each step walks the
drafted tree along the transcript as far as it goes and takes one token more; the last step ends with the output.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specrace.drafters import METHODS, Drafter, Material, Method, find_method
from specrace.errors import InputError
from specrace.metrics import LOOP_PERIOD, LOOP_TOKENS, LOOP_TURNS, LaneMetrics
from specrace.transcripts import Transcript
from specrace.tree import TokenTree, TreeBuilder
from specrace.verify import Scores, Verdict

# The target's token where the transcript does not tell it: at every node off the path that the output took.
UNKNOWN = -1
ALL, LOOPING = "all", "looping"
MAX_CATEGORIES = 1000


class PoolDrafter:
    """Lookahead without its window: the n-grams of prompt and output, which is all that a transcript can tell."""

    def __init__(self, material: Material, **options: Any) -> None:
        self.lookahead: Any = find_method("lookahead").build(material, **options)

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """The pool's n-grams after the pending token, the most recent first."""
        builder = TreeBuilder(context[-1])
        for ngram in self.lookahead.pool.after(context[-1]):
            builder.add_path(ngram)
        return builder.build()

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Fill the pool from what was said. No window was drafted, so lookahead learns nothing else."""
        self.lookahead.observe(tree, verdict)


@dataclass(frozen=True)
class Part:
    """What of a method can be scored: `note` in words, the options that this fixes, and what builds it."""

    note: str
    options: Mapping[str, int]
    build: Callable[..., Drafter]


_NEEDS_TARGET = {"jacobi": "its next guesses are the model's tokens after the rejected ones"}
_PARTS = {"lookahead": Part("pool from the prompt only", {"pool_from_prompt": True}, PoolDrafter)}


def needs_target(method: Method) -> str:
    """Why a method cannot be scored without its model, "" where it can.

    A drafter class says so itself in `needs_target_outputs`.
    """
    reason: str = getattr(method.build, "needs_target_outputs", "")
    return reason or _NEEDS_TARGET.get(method.name, "")


def scorable_lanes() -> tuple[str, ...]:
    """Every registered lane that can be scored."""
    return tuple(name for name, method in METHODS.items() if not needs_target(method))


@dataclass(frozen=True)
class ScoredLane:
    """A method as it is scored. `part` says what of it is, "" for the whole."""

    name: str
    num_draft: int
    options: Mapping[str, int | bool]
    build: Callable[..., Drafter]
    part: str = ""

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any], num_draft: int | None = None) -> ScoredLane:
        """A lane with its method's defaults on a GPU, then what was `given`.

        Raises InputError for an option out of bounds and for a method that a transcript cannot score.
        """
        method = find_method(name)
        reason = needs_target(method)
        if reason:
            raise InputError(f"The lane {name} cannot be scored without its model: {reason}; leave it out of --lanes.")
        checked = method.check(given)
        options = method.defaults("cuda") | checked
        # A drafter that is scored whole may still have a remark to make: then only its class knows which.
        part = _PARTS.get(name, Part(getattr(method.build, "scored_part", ""), {}, method.build))
        for key, value in part.options.items():
            if checked.get(key, value) != value:
                raise InputError(f"The lane {name} is scored as its {part.note}; leave out --option {name}.{key}.")
            options[key] = value
        default = method.budget("cuda", options)
        budget = default if num_draft is None or name == "vanilla" else num_draft
        return cls(name, budget, options, part.build, part.note)


@dataclass(frozen=True)
class ForcedStep:
    """One turn: the tree, the accepted nodes (root first), the tokens taken, and the drafter's time."""

    tree: TokenTree
    path: tuple[int, ...]
    emitted: tuple[int, ...]
    draft_ms: float


def forced_steps(
    drafter: Drafter, prompt: Sequence[int], output: Sequence[int], num_draft: int
) -> Iterator[ForcedStep]:
    """Decode `output` after `prompt`, neither empty, with a drafter made for it; at most `num_draft` guesses a step."""
    context, at = list(prompt), 0
    while at < len(output):
        began = time.perf_counter()
        tree = drafter.propose(context, num_draft).cut(num_draft)
        drafted = time.perf_counter()
        path = walk(tree, output, at)
        emitted = tuple(output[at : at + len(path)])
        at += len(emitted)
        context += emitted
        verdict = _verdict(tree, path, emitted)
        walked = time.perf_counter()
        # After the last token there is no bonus to tell of, and nobody is left to learn.
        if at < len(output):
            drafter.observe(tree, verdict)
        yield ForcedStep(tree, path, emitted, 1000 * (drafted - began + time.perf_counter() - walked))


def walk(tree: TokenTree, output: Sequence[int], at: int) -> tuple[int, ...]:
    """Nodes from the root on that carry output[at], output[at + 1], ..."""
    path, children = [0], tree.children
    for token in output[at : at + len(tree)]:
        child = children[path[-1]].get(token)
        if child is None:
            break
        path.append(child)
    return tuple(path)


def _verdict(tree: TokenTree, path: Sequence[int], emitted: Sequence[int]) -> Verdict:
    """What a target would have said, as far as the transcript tells: UNKNOWN off the path."""
    targets = [UNKNOWN] * len(tree)
    for node, token in zip(path, emitted, strict=False):
        targets[node] = token
    return Verdict(tuple(path), targets[path[-1]], Scores(tuple(targets)))


def longest_loop(tokens: Sequence[int]) -> int:
    """The most tokens in a row that repeat one period again and again, anywhere; 0 when nothing loops.

    Unlike `metrics.loop_tokens`, which watches the end of a growing text, this looks at a finished one: it may have
    found its way out, or close with an end-of-text token.
    """
    text = np.asarray(tokens)
    longest = 0
    for period in range(1, min(LOOP_PERIOD, len(text) - 1) + 1):
        differs = np.flatnonzero(text[period:] != text[:-period])
        edges = np.concatenate(([-1], differs, [len(text) - period]))
        same = int(np.diff(edges).max()) - 1
        if same and same + period >= max(LOOP_TOKENS, LOOP_TURNS * period):
            longest = max(longest, same + period)
    return longest


@dataclass(frozen=True)
class CostCurve:
    """Time of a forward over some rows divided by that over one row, as measured on some machine."""

    rows: tuple[int, ...]
    ratio: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.ratio) or self.rows[:1] != (1,) or sorted(set(self.rows)) != list(self.rows):
            raise InputError("A cost curve needs as many ratios as rows, and rows that rise from 1.")
        if not all(0 < ratio < float("inf") for ratio in self.ratio):
            raise InputError("A cost curve's ratios are above 0; measure it again with calibrate.")

    def at(self, rows: int) -> float:
        """The ratio at `rows`, on straight lines between what was measured; the last one goes on."""
        if len(self.rows) == 1:
            return 1.0
        right = min(max(1, bisect_left(self.rows, rows)), len(self.rows) - 1)
        (x0, x1), (y0, y1) = self.rows[right - 1 : right + 1], self.ratio[right - 1 : right + 1]
        value = y0 + (y1 - y0) * (rows - x0) / (x1 - x0)
        # A last line that falls is noise; further rows never cost less than the last that were measured.
        return (max(value, y1) if rows > x1 else value) / self.ratio[0]


@dataclass
class Tally:
    """Totals of one lane over some outputs. `sizes` counts steps by draft tokens."""

    metrics: LaneMetrics = field(default_factory=LaneMetrics)
    outputs: int = 0
    looping: int = 0
    looping_tokens: int = 0
    looping_steps: int = 0
    build_ms: float = 0.0
    sizes: Counter[int] = field(default_factory=Counter)

    def add(self, step: ForcedStep) -> None:
        """Count one step."""
        self.metrics.tokens += len(step.emitted)
        self.metrics.steps += 1
        self.metrics.drafted += step.tree.num_draft
        self.metrics.accepted += len(step.path) - 1
        self.metrics.draft_ms += step.draft_ms
        self.sizes[step.tree.num_draft] += 1

    def merge(self, other: Tally) -> None:
        """Add the totals of other outputs."""
        for name in ("tokens", "steps", "drafted", "accepted", "draft_ms"):
            setattr(self.metrics, name, getattr(self.metrics, name) + getattr(other.metrics, name))
        for name in ("outputs", "looping", "looping_tokens", "looping_steps", "build_ms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.sizes.update(other.sizes)

    def row(self, curve: CostCurve | None = None) -> dict[str, Any]:
        """The figures under their names. Times are the drafter's own; a null is a figure of nothing."""
        m = self.metrics
        calm = m.steps - self.looping_steps
        figures = {
            "outputs": self.outputs,
            "looping": self.looping,
            "tokens": m.tokens,
            "steps": m.steps,
            "tau": m.tau,
            "tau_without_looping": (m.tokens - self.looping_tokens) / calm if calm else None,
            "drafted_per_step": m.drafted_per_step,
            "acceptance_rate": m.acceptance_rate,
            "draft_ms_per_step": m.draft_ms / m.steps,
            "build_ms_per_output": self.build_ms / self.outputs,
        }
        if curve is not None:
            cost = sum(count * curve.at(1 + size) for size, count in self.sizes.items())
            figures["expected_speedup"] = m.tokens / cost
        return figures


def score_output(lane: ScoredLane, transcript: Transcript, *, looping: bool = False) -> Tally:
    """One lane over one transcript."""
    began = time.perf_counter()
    drafter = lane.build(Material(transcript.prompt, transcript.vocab_size), **lane.options)
    tally = Tally(outputs=1, build_ms=1000 * (time.perf_counter() - began))
    for step in forced_steps(drafter, transcript.prompt, transcript.output, lane.num_draft):
        tally.add(step)
    if looping:
        tally.looping, tally.looping_tokens, tally.looping_steps = 1, tally.metrics.tokens, tally.metrics.steps
    return tally


class Scoreboard:
    """Several lanes over transcripts that come one by one; it keeps totals only.

    The figures of "all" and of the categories are over every output. Looping outputs, which flatter drafters, are
    counted in each group, stand apart in the group "looping", and `tau_without_looping` leaves them out.
    """

    def __init__(self, lanes: Sequence[ScoredLane], *, by_category: bool = False) -> None:
        self.lanes = lanes
        self.by_category = by_category
        self.outputs = 0
        self.looping = 0
        self._categories: dict[str, None] = {}
        self._tallies: dict[tuple[str, str], Tally] = {}

    def add(self, transcript: Transcript) -> None:
        """Score one transcript in every lane. Raises InputError for one category too many."""
        looping = longest_loop(transcript.output) > 0
        groups = [ALL, *([LOOPING] if looping else [])]
        if self.by_category:
            groups.append(self._category(transcript.category))
        for lane in self.lanes:
            tally = score_output(lane, transcript, looping=looping)
            for group in groups:
                self._tallies.setdefault((lane.name, group), Tally()).merge(tally)
        self.outputs += 1
        self.looping += looping

    def _category(self, name: str) -> str:
        """The group of a category; the names of our own groups are kept apart from it."""
        group = f"{name} (category)" if name in (ALL, LOOPING) else name
        self._categories[group] = None
        if len(self._categories) > MAX_CATEGORIES:
            raise InputError(f"There are more than {MAX_CATEGORIES} categories; leave out --by category.")
        return group

    def groups(self, curve: CostCurve | None = None) -> list[dict[str, Any]]:
        """A row a lane and group: "all", the categories in the order of the file, and "looping" if there is any."""
        rows = []
        for lane in self.lanes:
            for category in (ALL, *self._categories, LOOPING):
                tally = self._tallies.get((lane.name, category))
                if tally is not None:
                    about = {"lane": lane.name, "category": category}
                    scored = {"num_draft": lane.num_draft, "scored": lane.part or "whole"}
                    rows.append(about | tally.row(curve) | scored)
        return rows
