"""Forced decoding: scores a drafter on a known output, without a model.

The transcript is the ground truth. As in a race, the first step's root is the prompt's last token; each step accepts
the longest tree path that matches the transcript and adds one bonus token; the last step ends where the output ends.
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
from specrace.core.metrics import LOOP_PERIOD, LOOP_REPEATS, LOOP_TOKENS, LaneMetrics
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.drafters import METHODS, Drafter, DrafterInputs, Method
from specrace.engine.lane_name import method_of, parse_lane
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.measured import MeasuredBoard
from specrace.ngrams.past import PastOutputs

# Stands for the target's token at nodes off the accepted path, which a transcript does not contain.
UNKNOWN = -1
# The groups beside the user's categories: every output, and those that repeat themselves.
ALL, LOOPING = "all", "looping"
# Not every row of a log may be a category of its own: that would fill the memory. The number is a guess.
MAX_CATEGORIES = 1000

# Called with a lane's name and each of its steps.
Watch = Callable[[str, Step], None]


def group_name(category: str) -> str:
    """The name of a category's group, which differs from the category if one of our own groups has its name."""
    return f"{category} (category)" if category in (ALL, LOOPING) else category


def why_not_scorable(method: Method) -> str:
    """Why a method cannot be scored without the target model; "" if it can."""
    return method.needs_target_outputs


def scorable_lanes() -> tuple[str, ...]:
    """The lanes that can be scored."""
    return tuple(name for name, method in METHODS.items() if not why_not_scorable(method))


@dataclass(frozen=True)
class ScoredLane:
    """A method with its settings, ready to be scored; `part`: which part of the method is scored, "" for the whole.

    `name`: the method's, or one with options (`specrace.engine.lane_name`).
    """

    name: str
    num_draft: int
    options: Mapping[str, float | bool]
    build: Callable[..., Drafter]
    part: str = ""

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any], num_draft: int | None = None) -> ScoredLane:
        """A lane with these options and draft size, and otherwise its method's defaults on a GPU.

        Raises InputError for an option out of bounds, and for a method or settings that a transcript cannot score.
        """
        lane = parse_lane(name)
        name, method = str(lane), lane.method
        reason = why_not_scorable(method)
        if reason:
            raise InputError(f"The lane {name} cannot be scored without its model: {reason}; leave it out of --lanes.")
        checked = method.check(options) | lane.options
        all_options = method.defaults("cuda") | checked
        # Which part of the method is scored if some of its inputs are in no transcript, and with which fixed options.
        scoring = method.scoring
        for key, value in scoring.options.items():
            if checked.get(key, value) != value:
                raise InputError(f"The lane {name} is scored in part ({scoring.part}); leave its {key} out.")
            all_options[key] = value
        if num_draft is None or name == "vanilla":
            num_draft = method.budget("cuda", all_options)
        reason = scoring.refuses(all_options) if scoring.refuses is not None else ""
        if reason:
            raise InputError(f"The lane {name} cannot be scored without its model: {reason}.")
        return cls(
            name=name, num_draft=num_draft, options=all_options, build=scoring.build or method.build, part=scoring.part
        )

    @property
    def method(self) -> Method:
        """The lane's method."""
        return method_of(self.name)

    @property
    def max_rows(self) -> int | None:
        """How many rows a tree may be padded to where more rows cost less; None for twins (others' drafters)."""
        return None if self.method.twin_of else 1 + self.unscored_rows + self.num_draft

    @property
    def padded_draft(self) -> int | None:
        """The draft size to which the twin's engine pads every draft; None if it does not pad."""
        return self.num_draft if self.method.padded else None

    @property
    def unscored_rows(self) -> int:
        """The number of draft tokens that each step verifies in addition to those that are scored."""
        count = self.method.scoring.unscored_rows
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
    """Yield the steps in which a new drafter decodes `output` after `prompt`, with at most `num_draft` draft tokens.

    Neither text may be empty. A log does not record its length limit, so drafters get none: the steps are those of a
    race that ends with an end-of-text token before its limit. Only the draft time is measured; `at_ms` is 0.
    """
    for index, (tree, verdict, emitted, draft_ms) in enumerate(_forced(drafter, prompt, output, num_draft, thread_ms)):
        yield Step("", index, 0.0, tree, verdict, emitted, Timing(draft_ms, 0.0, 0.0))


def _forced(
    drafter: Drafter, prompt: Sequence[int], output: Sequence[int], num_draft: int, clock: Callable[[], float]
) -> Iterator[tuple[TokenTree, Verdict, tuple[int, ...], float]]:
    """(tree, verdict, emitted tokens, draft time by the `clock`) of each step."""
    context = list(prompt)
    at = 0
    while at < len(output):
        began = clock()
        tree = drafter.propose(context, num_draft).cut(num_draft)
        drafted = clock()
        path = walk(tree, output, at)
        emitted = tuple(output[at : at + len(path)])
        at += len(emitted)
        context += emitted
        targets = [UNKNOWN] * len(tree)
        for node, token in zip(path, emitted, strict=False):
            targets[node] = token
        verdict = Verdict(path, targets[path[-1]], Scores(tuple(targets)))
        walked = clock()
        if at < len(output):
            drafter.observe(tree, verdict)
        # The time of `propose` and `observe`; never negative, although the clock may step back a little.
        yield tree, verdict, emitted, max(0.0, drafted - began + clock() - walked)


def walk(tree: TokenTree, output: Sequence[int], at: int) -> tuple[int, ...]:
    """The longest path from the root on which the nodes' tokens are output[at], output[at + 1], ..."""
    path = [0]
    last = 0
    # One pass is enough, because children come after their parents and siblings have distinct tokens.
    for node in range(1, len(tree.tokens)):
        if at == len(output):
            break
        if tree.parents[node] == last and tree.tokens[node] == output[at]:
            path.append(node)
            last = node
            at += 1
    return tuple(path)


def longest_loop(tokens: Sequence[int]) -> int:
    """The length of the longest stretch of tokens that repeats one period; 0 if nothing loops.

    A loop has a period of at most LOOP_PERIOD tokens, LOOP_REPEATS repetitions or more, and LOOP_TOKENS tokens or more.
    Unlike `metrics.loop_tokens`, which looks at the end of a growing output, this searches all of a finished output.
    """
    text = np.asarray(tokens)
    longest = 0
    for period in range(1, min(LOOP_PERIOD, len(text) - 1) + 1):
        # Where a token differs from the one a period later; between two such places the tokens repeat.
        differs = np.flatnonzero(text[period:] != text[:-period])
        edges = np.concatenate(([-1], differs, [len(text) - period]))
        repeated = int(np.diff(edges).max()) - 1
        if repeated and repeated + period >= max(LOOP_TOKENS, LOOP_REPEATS * period):
            longest = max(longest, repeated + period)
    return longest


@dataclass
class Tally:
    """Totals of one lane over some outputs.

    `looping`, `loops`: the number of the outputs that loop, and their metrics. `steps`: (draft tokens, accepted tokens)
    -> number of such steps. `build_ms`: the time to build the drafters' tables for each request. `shared_ms`: the time
    spent so far on indexes of earlier outputs, which a server builds once for all requests.
    """

    metrics: LaneMetrics = field(default_factory=LaneMetrics)
    outputs: int = 0
    looping: int = 0
    loops: LaneMetrics = field(default_factory=LaneMetrics)
    build_ms: float = 0.0
    shared_ms: float = 0.0
    steps: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, step: Step) -> None:
        """Count one step."""
        self.metrics.add(step)
        self.steps[step.tree.num_draft, step.accepted] += 1

    def merge(self, other: Tally) -> None:
        """Add the totals of other outputs."""
        self.metrics.merge(other.metrics)
        self.loops.merge(other.loops)
        self.outputs += other.outputs
        self.looping += other.looping
        self.build_ms += other.build_ms
        # Both include the time of earlier outputs, so the sum would count it twice.
        self.shared_ms = max(self.shared_ms, other.shared_ms)
        self.steps.update(other.steps)

    def row(self, curve: CostCurve | None = None, lane: ScoredLane | None = None) -> dict[str, Any]:
        """The metrics by name; `tau` is tokens per step, and times are the drafter's. A metric without data is None.

        With a `curve` they include the expected speedup; the `lane` says how many rows a step verifies.
        """
        metrics = self.metrics
        steps_without_loops = metrics.steps - self.loops.steps
        tokens_without_loops = metrics.tokens - self.loops.tokens
        row = {
            "outputs": self.outputs,
            "looping": self.looping,
            "tokens": metrics.tokens,
            "steps": metrics.steps,
            "tau": metrics.tau,
            "tau_without_looping": tokens_without_loops / steps_without_loops if steps_without_loops else None,
            "drafted_per_step": metrics.drafted_per_step,
            "acceptance_rate": metrics.acceptance_rate,
            "draft_ms_per_step": metrics.draft_ms / metrics.steps,
            "build_ms_per_output": self.build_ms / self.outputs,
        }
        if curve is not None:
            row["expected_speedup"] = metrics.tokens / self._cost(curve, lane)
        return row

    def _cost(self, curve: CostCurve, lane: ScoredLane | None) -> float:
        """The cost of all steps, in forwards over one row."""
        if lane is not None and lane.padded_draft is not None:
            # An output's first step reads the prompt and has no draft; every other step verifies a full draft.
            return self.outputs + (self.metrics.steps - self.outputs) * curve.at(1 + lane.padded_draft)
        min_rows = 1 if lane is None else 1 + lane.unscored_rows
        max_rows = None if lane is None else lane.max_rows
        rows = {drafted: min_rows + drafted for drafted, _ in self.steps}
        if max_rows is not None:
            rows = {drafted: pad_rows(curve, count, max_rows) for drafted, count in rows.items()}
        return sum(count * curve.at(rows[drafted]) for (drafted, _), count in self.steps.items())


def score_output(
    lane: ScoredLane,
    transcript: Transcript,
    *,
    looping: bool = False,
    curve: CostCurve = ASSUMED_GPU,
    past: PastOutputs | None = None,
    watch: Callable[[Step], None] | None = None,
) -> Tally:
    """Score one transcript in one lane; `watch` is called with each step.

    `looping`: whether the output loops. `curve`: drafters that size their own trees use its part near the prompt's
    length. `past`: outputs of earlier requests that drafters may draft from.
    """
    # The meter tells the time spent on the indexes of `past`, which the drafter builds at first use.
    past = PastOutputs() if past is None else past.metered()
    began = thread_ms()
    drafter = _build(lane, transcript, curve, past)
    build_ms = max(0.0, since_ms(began) - past.meter.built_ms)
    tally = Tally(outputs=1, build_ms=build_ms, shared_ms=sum(past.meter.used_ms.values()))
    for step in forced_steps(drafter, transcript.prompt, transcript.output, lane.num_draft):
        tally.add(step)
        if watch is not None:
            watch(step)
    if looping:
        tally.looping, tally.loops = 1, tally.metrics
    return tally


def count_steps(
    lane: ScoredLane, transcript: Transcript, curve: CostCurve, clock: Callable[[], float] = thread_ms
) -> tuple[Counter[tuple[int, int]], float, float]:
    """(`Tally.steps`, draft_ms, build_ms) of one transcript in one lane; faster than `score_output`."""
    began = clock()
    drafter = _build(lane, transcript, curve)
    build_ms = since_ms(began, clock)
    draft_ms = 0.0
    steps = Counter[tuple[int, int]]()
    for tree, verdict, _, step_draft_ms in _forced(
        drafter, transcript.prompt, transcript.output, lane.num_draft, clock
    ):
        steps[tree.num_draft, verdict.accepted] += 1
        draft_ms += step_draft_ms
    return steps, draft_ms, build_ms


def _build(lane: ScoredLane, transcript: Transcript, curve: CostCurve, past: PastOutputs | None = None) -> Drafter:
    near = curve.near(len(transcript.prompt))
    inputs = DrafterInputs(transcript.prompt, transcript.vocab_size, past=past or (), curve=near)
    return lane.build(inputs, **lane.options)


class Scoreboard:
    """Totals of several lanes over a stream of transcripts, by group.

    The group "all" has every output, and so do the categories together. Looping outputs, which flatter drafters, count
    in these groups and also form the group "looping"; `tau_without_looping` leaves them out. `curve`: the one by which
    drafters size their own trees. With `keep_outputs` drafters may draft from the outputs of earlier transcripts that
    had another prompt. `measured`: the engines' own counts of their drafts, for the transcripts whose log has them.
    """

    def __init__(
        self,
        lanes: Sequence[ScoredLane],
        *,
        by_category: bool = False,
        curve: CostCurve | None = None,
        keep_outputs: bool = False,
    ) -> None:
        self.lanes = lanes
        self.by_category = by_category
        self.curve = curve
        self.past = PastOutputs() if keep_outputs else None
        self.measured = MeasuredBoard([(lane.name, lane.num_draft) for lane in lanes])
        self.outputs = 0
        self.looping = 0
        # The names of the groups, as an ordered set.
        self._categories: dict[str, None] = {}
        self._tallies: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)

    def add(self, transcript: Transcript, watch: Watch | None = None) -> None:
        """Score one transcript in every lane. Raises InputError for more than MAX_CATEGORIES categories.

        If `watch` raises an exception, the totals stay as they were.
        """
        looping = longest_loop(transcript.output) > 0
        past = None if self.past is None else self.past.excluding(transcript.prompt)
        tallies = [
            score_output(
                lane,
                transcript,
                looping=looping,
                curve=self.curve or ASSUMED_GPU,
                past=past,
                watch=None if watch is None else partial(watch, lane.name),
            )
            for lane in self.lanes
        ]
        groups = [ALL, LOOPING] if looping else [ALL]
        if self.by_category:
            groups.append(self._category(transcript.category))
        for lane, tally in zip(self.lanes, tallies, strict=True):
            for group in groups:
                self._tallies[lane.name, group].merge(tally)
        self.measured.add(transcript.measured, groups, [tally.steps for tally in tallies])
        if self.past is not None:
            self.past.add(transcript.output, transcript.prompt)
        self.outputs += 1
        self.looping += looping

    def _category(self, name: str) -> str:
        """Note a category, and return the name of its group. Raises InputError if there are too many."""
        group = group_name(name)
        self._categories[group] = None
        if len(self._categories) > MAX_CATEGORIES:
            raise InputError(f"There are more than {MAX_CATEGORIES} categories; leave out --by category.")
        return group

    def groups(self, curve: CostCurve | None = None) -> list[dict[str, Any]]:
        """A row for each lane and group; with a `curve`, it has the expected speedup."""
        return [
            {
                "lane": lane.name,
                "category": category,
                **self._tallies[lane.name, category].row(curve, lane),
                **({} if self.past is None else {"shared_ms": self._tallies[lane.name, ALL].shared_ms}),
                "num_draft": lane.num_draft,
                "scored": lane.part or "whole",
            }
            for lane in self.lanes
            for category in (ALL, *self._categories, LOOPING)
            if (lane.name, category) in self._tallies
        ]
