"""Forced decoding: the tokens per step of a drafter on a given output. No model runs.

The transcript is the ground truth. As in a race, the first step's root is the prompt's last token; each step accepts
the longest tree path that the transcript follows and adds one bonus token; the last step ends with the output.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from specrace.core.clock import since_ms, thread_ms
from specrace.core.cost_curve import ASSUMED_GPU, CostCurve, pad_rows
from specrace.core.errors import InputError
from specrace.core.events import Step, Timing
from specrace.core.metrics import LOOP_PERIOD, LOOP_TOKENS, LOOP_TURNS, LaneMetrics
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.drafters import METHODS, Drafter, DrafterInputs, Method, find_method
from specrace.lab.transcripts import Transcript
from specrace.ngrams.past import PastOutputs

# The target's token at nodes off the accepted path, which the transcript does not have.
UNKNOWN = -1
ALL, LOOPING = "all", "looping"
MAX_CATEGORIES = 1000

# Gets a lane's name and each of its steps.
Watch = Callable[[str, Step], None]


def group_name(category: str) -> str:
    """The name of a category's group, another where it has the name of one of our own groups."""
    return f"{category} (category)" if category in (ALL, LOOPING) else category


def needs_target(method: Method) -> str:
    """Why a method cannot be scored without its model, from its drafter's class; "" where it can."""
    return method.needs_target_outputs


def scorable_lanes() -> tuple[str, ...]:
    """The lanes that can be scored."""
    return tuple(name for name, method in METHODS.items() if not needs_target(method))


@dataclass(frozen=True)
class ScoredLane:
    """A method as it is scored; `part` names the part that is scored, "" for the whole."""

    name: str
    num_draft: int
    options: Mapping[str, float | bool]
    build: Callable[..., Drafter]
    part: str = ""

    @classmethod
    def of(cls, name: str, given: Mapping[str, Any], num_draft: int | None = None) -> ScoredLane:
        """A lane with the options `given`, else its method's defaults on a GPU.

        Raises InputError for an option out of bounds and for a method that a transcript cannot score.
        """
        method = find_method(name)
        reason = needs_target(method)
        if reason:
            raise InputError(f"The lane {name} cannot be scored without its model: {reason}; leave it out of --lanes.")
        checked = method.check(given)
        options = method.defaults("cuda") | checked
        scoring = method.scoring
        for key, value in scoring.options.items():
            if checked.get(key, value) != value:
                raise InputError(f"The lane {name} is scored as its {scoring.part}; leave out --option {name}.{key}.")
            options[key] = value
        default = method.budget("cuda", options)
        budget = default if num_draft is None or name == "vanilla" else num_draft
        return cls(name, budget, options, scoring.build or method.build, scoring.part)

    @property
    def most_rows(self) -> int | None:
        """Rows up to which a tree is padded where more of them cost less; None for other engines' drafters."""
        return None if find_method(self.name).twin_of else 1 + self.unscored_rows + self.num_draft

    @property
    def filled(self) -> int | None:
        """The draft size that its engine fills every draft up to; None where it verifies what was drafted."""
        return self.num_draft if find_method(self.name).padded else None

    @property
    def unscored_rows(self) -> int:
        """Draft tokens that each step verifies beside those that are scored, where the budget has room for them."""
        count = find_method(self.name).scoring.unscored_rows
        return 0 if count is None else count(self.options, self.num_draft)

    def describe(self) -> dict[str, Any]:
        """The lane and its settings as JSON."""
        return {
            "lane": self.name,
            "num_draft": self.num_draft,
            "options": dict(self.options),
            "scored": self.part or "whole",
        }


def forced_steps(drafter: Drafter, prompt: Sequence[int], output: Sequence[int], num_draft: int) -> Iterator[Step]:
    """The steps of `output` after `prompt`, neither empty, by a new drafter; at most `num_draft` draft tokens each.

    Drafters get no length limit, since a log does not hold it: the steps are those of a race that an end-of-text token
    ends before its limit. Only the draft time is measured, and `at_ms` is 0.
    """
    for index, (tree, verdict, emitted, draft_ms) in enumerate(_forced(drafter, prompt, output, num_draft, thread_ms)):
        yield Step("", index, 0.0, tree, verdict, emitted, Timing(draft_ms, 0.0, 0.0))


def _forced(
    drafter: Drafter, prompt: Sequence[int], output: Sequence[int], num_draft: int, clock: Callable[[], float]
) -> Iterator[tuple[TokenTree, Verdict, tuple[int, ...], float]]:
    """(tree, verdict, emitted tokens, draft time by the `clock`) of each step."""
    context, at = list(prompt), 0
    while at < len(output):
        began = clock()
        tree = drafter.propose(context, num_draft).cut(num_draft)
        drafted = clock()
        path = walk(tree, output, at)
        emitted = tuple(output[at : at + len(path)])
        at += len(emitted)
        context += emitted
        # UNKNOWN off the path.
        targets = [UNKNOWN] * len(tree)
        for node, token in zip(path, emitted, strict=False):
            targets[node] = token
        verdict = Verdict(path, targets[path[-1]], Scores(tuple(targets)))
        walked = clock()
        if at < len(output):
            drafter.observe(tree, verdict)
        # As in `since_ms`.
        yield tree, verdict, emitted, max(0.0, drafted - began + clock() - walked)


def walk(tree: TokenTree, output: Sequence[int], at: int) -> tuple[int, ...]:
    """The longest path from the root whose nodes have the tokens output[at], output[at + 1], ..."""
    path, last = [0], 0
    # One pass is enough: children come after their parents, and siblings have distinct tokens.
    for node in range(1, len(tree.tokens)):
        if at == len(output):
            break
        if tree.parents[node] == last and tree.tokens[node] == output[at]:
            path.append(node)
            last, at = node, at + 1
    return tuple(path)


def longest_loop(tokens: Sequence[int]) -> int:
    """The length of the longest run of tokens that repeats one period; 0 when nothing loops.

    Unlike `metrics.loop_tokens`, which looks at the end of a growing output, this searches all of a finished one.
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


@dataclass
class Tally:
    """Totals of one lane over some outputs, `loops` over the looping ones.

    `steps` counts steps by (draft tokens, accepted ones).
    """

    metrics: LaneMetrics = field(default_factory=LaneMetrics)
    outputs: int = 0
    looping: int = 0
    loops: LaneMetrics = field(default_factory=LaneMetrics)
    build_ms: float = 0.0
    steps: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, step: Step) -> None:
        """Count one step."""
        self.metrics.add(step)
        self.steps[step.tree.num_draft, step.accepted] += 1

    def merge(self, other: Tally) -> None:
        """Add the totals of other outputs."""
        self.metrics.merge(other.metrics)
        self.loops.merge(other.loops)
        for name in ("outputs", "looping", "build_ms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.steps.update(other.steps)

    def row(self, curve: CostCurve | None = None, lane: ScoredLane | None = None) -> dict[str, Any]:
        """The figures by name; times are the drafter's. A figure without data is null.

        With a `curve` the `lane` says what its steps verify beside the draft tokens that were counted.
        """
        m = self.metrics
        calm = m.steps - self.loops.steps
        figures = {
            "outputs": self.outputs,
            "looping": self.looping,
            "tokens": m.tokens,
            "steps": m.steps,
            "tau": m.tau,
            "tau_without_looping": (m.tokens - self.loops.tokens) / calm if calm else None,
            "drafted_per_step": m.drafted_per_step,
            "acceptance_rate": m.acceptance_rate,
            "draft_ms_per_step": m.draft_ms / m.steps,
            "build_ms_per_output": self.build_ms / self.outputs,
        }
        if curve is not None:
            rows = 1 if lane is None else 1 + lane.unscored_rows
            most = None if lane is None else lane.most_rows
            padded = {drafted: rows + drafted for drafted, _ in self.steps}
            if most is not None:
                padded = {drafted: pad_rows(curve, count, most) for drafted, count in padded.items()}
            cost = sum(count * curve.at(padded[drafted]) for (drafted, _), count in self.steps.items())
            if lane is not None and lane.filled is not None:
                cost = self.outputs + (m.steps - self.outputs) * curve.at(1 + lane.filled)
            figures["expected_speedup"] = m.tokens / cost
        return figures


def score_output(
    lane: ScoredLane,
    transcript: Transcript,
    *,
    looping: bool = False,
    curve: CostCurve = ASSUMED_GPU,
    past: PastOutputs | None = None,
    watch: Callable[[Step], None] = lambda _: None,
) -> Tally:
    """Score one transcript in one lane; drafters that size their own trees use `curve` near the prompt's length."""
    began = thread_ms()
    drafter = _built(lane, transcript, curve, past)
    tally = Tally(outputs=1, build_ms=since_ms(began))
    for step in forced_steps(drafter, transcript.prompt, transcript.output, lane.num_draft):
        tally.add(step)
        watch(step)
    if looping:
        tally.looping, tally.loops = 1, tally.metrics
    return tally


def count_steps(
    lane: ScoredLane, transcript: Transcript, curve: CostCurve, clock: Callable[[], float] = thread_ms
) -> tuple[Counter[tuple[int, int]], float, float]:
    """What is left of `score_output` where only counts are needed: `Tally.steps`, draft_ms and build_ms."""
    began = clock()
    drafter = _built(lane, transcript, curve)
    build_ms, draft_ms = since_ms(began, clock), 0.0
    steps = Counter[tuple[int, int]]()
    for tree, verdict, _, spent in _forced(drafter, transcript.prompt, transcript.output, lane.num_draft, clock):
        steps[tree.num_draft, verdict.accepted] += 1
        draft_ms += spent
    return steps, draft_ms, build_ms


def _built(lane: ScoredLane, transcript: Transcript, curve: CostCurve, past: PastOutputs | None = None) -> Drafter:
    near = curve.near(len(transcript.prompt))
    inputs = DrafterInputs(transcript.prompt, transcript.vocab_size, past=past or (), curve=near)
    return lane.build(inputs, **lane.options)


class Scoreboard:
    """Totals of several lanes over a stream of transcripts.

    The groups "all" and the categories hold every output. Looping outputs, which flatter drafters, are counted in each
    group and also form the group "looping"; `tau_without_looping` leaves them out. With `keep_outputs` drafters may
    draft from the outputs of earlier transcripts with another prompt.
    """

    def __init__(
        self,
        lanes: Sequence[ScoredLane],
        *,
        by_category: bool = False,
        curve: CostCurve | None = None,
        keep_outputs: bool = False,
    ) -> None:
        self.lanes, self.by_category, self.curve = lanes, by_category, curve
        self.past = PastOutputs() if keep_outputs else None
        self.outputs = self.looping = 0
        self._categories: dict[str, None] = {}
        self._tallies: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)

    def add(self, transcript: Transcript, watch: Watch = lambda *_: None) -> None:
        """Score one transcript in every lane. Raises InputError for more than MAX_CATEGORIES categories.

        An exception that `watch` raises leaves the totals as they were.
        """
        looping = longest_loop(transcript.output) > 0
        past = None if self.past is None else self.past.of_others(transcript.prompt)
        how: dict[str, Any] = {"looping": looping, "curve": self.curve or ASSUMED_GPU, "past": past}
        tallies = [score_output(lane, transcript, **how, watch=partial(watch, lane.name)) for lane in self.lanes]
        groups = [ALL, *([LOOPING] if looping else [])]
        if self.by_category:
            groups.append(self._category(transcript.category))
        for lane, tally in zip(self.lanes, tallies, strict=True):
            for group in groups:
                self._tallies[lane.name, group].merge(tally)
        if self.past is not None:
            self.past.add(transcript.output, transcript.prompt)
        self.outputs += 1
        self.looping += looping

    def _category(self, name: str) -> str:
        """The group of a category, renamed where it has the name of one of our own groups."""
        group = group_name(name)
        self._categories[group] = None
        if len(self._categories) > MAX_CATEGORIES:
            raise InputError(f"There are more than {MAX_CATEGORIES} categories; leave out --by category.")
        return group

    def groups(self, curve: CostCurve | None = None) -> list[dict[str, Any]]:
        """A row for each lane and group: "all", the categories in order of appearance, and "looping" if present."""
        return [
            {
                "lane": lane.name,
                "category": category,
                **self._tallies[lane.name, category].row(curve, lane),
                "num_draft": lane.num_draft,
                "scored": lane.part or "whole",
            }
            for lane in self.lanes
            for category in (ALL, *self._categories, LOOPING)
            if (lane.name, category) in self._tallies
        ]
