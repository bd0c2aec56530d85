"""The tables and figures of "Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding", on any logs.

Steps and drafting times are measured by forced decoding; speedups are forecasts on a cost curve. The trie is the
paper's: static, over the prompt's tokens and not the output's, with n = 13 (its depth), L_p = 3 (the most tokens that
it matches) and 32 draft tokens unless a table varies them. In a sweep, lane 0 is vanilla.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from specrace.core.clock import since_ms, thread_ms
from specrace.core.cost_curve import CostCurve
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters import DrafterInputs
from specrace.lab.advice.forecast import Forecast, forecast_sweep
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ALL, ScoredLane, forced_steps, group_name
from specrace.lab.scoring.sweep import Sweep, grid_lanes

# The paper's settings: n is the depth of the trie; `prefix`, in the paper L_p, is the most tokens that it matches.
PAPER = {"n": 13, "prefix": 3, "static": True}
NUM_DRAFT = 32
# The values of n and of L_p in tables 2, 5 and 6.
N, PREFIX = range(8, 17), range(2, 6)
NUM_DRAFTS = (8, 16, 32, 64, 128, 256)
# The largest accepted length in figure 4; longer ones count as it.
MAX_LENGTH = 12
# The row of table 1 with the means over the categories.
MEAN = "mean of the categories"


@dataclass(frozen=True)
class Table:
    """A table: its title, the names of its columns, and rows of a name and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def swept_lanes(name: str) -> list[ScoredLane]:
    """The lanes that a table or figure needs, vanilla first."""
    fixed = {key: [value] for key, value in PAPER.items()}
    if name == "table1":
        other_lanes = grid_lanes(["lookahead", "rest", "prompt-lookup"], {}, ())
        # Without its first lane, a second vanilla.
        return other_lanes + grid_lanes(["trie"], {"trie": fixed}, [NUM_DRAFT])[1:]
    if name in ("table2", "table5", "table6"):
        return grid_lanes(["trie"], {"trie": fixed | {"n": N, "prefix": PREFIX}}, [NUM_DRAFT])
    return grid_lanes(["trie"], {"trie": fixed}, NUM_DRAFTS if name == "table3" else [NUM_DRAFT])


def make_tables(name: str, sweep: Sweep, transcripts: Sequence[Transcript], curve: CostCurve) -> list[Table]:
    """One of the paper's tables or figures as tables, from a finished sweep of `swept_lanes`.

    Requests with a looping output are left out, unless every output loops.
    """
    # For one request at a time, the only batch size asked for.
    forecast_of_all = forecast_sweep(sweep, curve)[0]
    all_requests = range(len(sweep.requests))
    included = [number for number in all_requests if not sweep.requests[number].looping] or list(all_requests)
    groups = {ALL: included}
    for number in included:
        groups.setdefault(group_name(sweep.requests[number].category), []).append(number)
    forecasts = {group: forecast_of_all.for_requests(numbers) for group, numbers in groups.items()}
    if name in ("table1", "table3", "table4"):
        return [_by_group(name, sweep, forecasts)]
    if name == "figure4":
        return [_lengths(sweep, groups)]
    if name == "figure5":
        return [_times(sweep.lanes[1], [transcripts[number] for number in included], curve)]
    if name == "table6":
        return [
            _grid("Table 6: ms to build the trie of a request", sweep, _mean_build_ms(sweep, included)),
            _inference_times(sweep, curve, forecasts[ALL], included),
        ]
    # Table 2 is of all requests, table 5 of each category.
    return [
        _grid(f"Table {name[-1]}: speedup, {group}", sweep, forecast.speedup)
        for group, forecast in forecasts.items()
        if (group == ALL) == (name == "table2")
    ]


def _mean_build_ms(sweep: Sweep, requests: Sequence[int]) -> list[float]:
    """Each lane's mean time to build its trie, over these requests."""
    included = set(requests)
    return [
        sum(score.build_ms for number, score in sweep.scores(lane) if number in included) / len(requests)
        for lane in range(len(sweep.lanes))
    ]


def _inference_times(sweep: Sweep, curve: CostCurve, forecast: Forecast, requests: Sequence[int]) -> Table:
    """Each lane's mean time to decode one of the `requests`, drafting included, from the `forecast` for them.

    With a curve that has no times, such as an assumed one, the unit is a one-row forward, and drafting is left out.
    """
    if curve.row_ms is None:
        title = "Table 6: decoding a request, forecast, in forwards over one row"
        return _grid(title, sweep, forecast.cost.mean(axis=1))
    # The forecast's unit is a forward over one row after the request's own prompt.
    row_ms = [curve.near(sweep.requests[number].prompt_tokens).row_ms or 0.0 for number in requests]
    title = "Table 6: ms to decode a request, forecast"
    return _grid(title, sweep, (forecast.cost * np.array(row_ms)).mean(axis=1))


def _by_group(name: str, sweep: Sweep, forecasts: dict[str, Forecast]) -> Table:
    """A table of every lane's speedup in every group and, except for table 3, its tokens per step.

    Table 1 also has the unweighted means over the categories; the group "all" pools the tokens of all requests.
    """
    lanes = [f"{lane.name} {lane.num_draft}" for lane in sweep.lanes[1:]]
    if name == "table3":
        rows = [(group, *map(float, forecast.speedup[1:])) for group, forecast in forecasts.items()]
        return Table("Table 3: speedup", ("category", *lanes), rows)
    columns = [f"{lane} {metric}" for lane in lanes for metric in ("speedup", "tokens/step")]
    rows = []
    for group, forecast in forecasts.items():
        pairs = zip(forecast.speedup[1:], forecast.tau[1:], strict=True)
        rows.append((group, *(float(cell) for pair in pairs for cell in pair)))
    if name == "table1" and len(rows) > 2:
        # The first row is the group "all", and the first cell of each row its name.
        rows.append((MEAN, *map(fmean, zip(*(row[1:] for row in rows[1:]), strict=True))))
    return Table(f"Table {name[-1]}: speedup and tokens per step", ("category", *columns), rows)


def _grid(title: str, sweep: Sweep, values: Sequence[float] | np.ndarray) -> Table:
    """A table of the lanes' `values`, rows by n and columns by L_p; vanilla is left out."""
    cells = {
        (lane.options["n"], lane.options["prefix"]): float(values[number])
        for number, lane in enumerate(sweep.lanes)
        if number
    }
    rows = [(str(n), *(cells[n, prefix] for prefix in PREFIX)) for n in N]
    return Table(title, ("n \\ L_p", *map(str, PREFIX)), rows)


def _lengths(sweep: Sweep, groups: dict[str, list[int]]) -> Table:
    """The share of steps by accepted length, bonus token included."""
    rows = []
    for group, numbers in groups.items():
        counts = Counter[int]()
        included = set(numbers)
        # Lane 1 is the trie.
        for number, score in sweep.scores(1):
            if number in included:
                for _, accepted, count in score.steps:
                    counts[min(1 + accepted, MAX_LENGTH)] += count
        rows.append((group, *(counts[length] / counts.total() for length in range(1, MAX_LENGTH + 1))))
    names = (*map(str, range(1, MAX_LENGTH)), f"{MAX_LENGTH} or more")
    return Table("Figure 4: share of steps by accepted length", ("category", *names), rows)


class _TimedDrafter:
    """A trie drafter that times the parts of its work."""

    def __init__(self, drafter: Any) -> None:
        self.drafter = drafter
        self.search_ms = self.draft_ms = self.tree_ms = self.observe_ms = 0.0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """Draft: search the trie, take the best nodes, and lay out the attention tree.

        `propose` does not time its search, so an extra search is timed, and its time is subtracted from the draft's.
        """
        began = thread_ms()
        self.drafter.trie.match(context[-self.drafter.prefix :])
        search_ms = since_ms(began)
        began = thread_ms()
        tree: TokenTree = self.drafter.propose(context, budget)
        self.draft_ms += max(0.0, since_ms(began) - search_ms)
        self.search_ms += search_ms
        began = thread_ms()
        _ = tree.ancestor_mask(), tree.depths
        self.tree_ms += since_ms(began)
        return tree

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Add the output to the trie, unless it is static."""
        began = thread_ms()
        self.drafter.observe(tree, verdict)
        self.observe_ms += since_ms(began)


def _times(lane: ScoredLane, transcripts: Sequence[Transcript], curve: CostCurve) -> Table:
    """The parts of a request's drafting time."""
    build_ms = search_ms = draft_ms = tree_ms = observe_ms = 0.0
    steps = 0
    for transcript in transcripts:
        began = thread_ms()
        inputs = DrafterInputs(transcript.prompt, transcript.vocab_size, curve=curve)
        drafter = _TimedDrafter(lane.build(inputs, **lane.options))
        build_ms += since_ms(began)
        steps += sum(1 for _ in forced_steps(drafter, transcript.prompt, transcript.output, lane.num_draft))
        search_ms += drafter.search_ms
        draft_ms += drafter.draft_ms
        tree_ms += drafter.tree_ms
        observe_ms += drafter.observe_ms
    parts = [
        ("build the trie", build_ms),
        ("search", search_ms),
        ("draft the best nodes", draft_ms),
        ("mask and positions", tree_ms),
        ("add the output", observe_ms),
    ]
    total = sum(ms for _, ms in parts)
    rows = [(name, ms / len(transcripts), ms / steps, ms / total) for name, ms in parts]
    return Table("Figure 5: drafting time", ("part", "ms a request", "ms a step", "share"), rows)
