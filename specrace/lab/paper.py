"""The tables and figures of "Faster In-Context Learning for LLMs via N-Gram Trie Speculative Decoding", on any logs.

Steps and drafting times are measured by forced decoding; a speedup is the forecast on a cost curve. The trie is the
paper's: static, over the prompt's tokens, with n = 13, L_p = 3 and 32 draft tokens where a table does not vary them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.core.clock import since_ms, thread_ms
from specrace.core.cost_curve import CostCurve
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict
from specrace.drafters import Drafter, DrafterInputs
from specrace.lab.forecast import Forecast, forecast_sweep
from specrace.lab.score import ALL, ScoredLane, forced_steps, group_name
from specrace.lab.sweep import Sweep, grid_lanes
from specrace.lab.transcripts import Transcript

PAPER = {"n": 13, "prefix": 3, "static": True}
NUM_DRAFT = 32
N, PREFIX = range(8, 17), range(2, 6)
NUM_DRAFTS = (8, 16, 32, 64, 128, 256)
# Lengths in figure 4; longer ones count as the last.
LENGTHS = 12


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and rows of a name and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def swept_lanes(name: str) -> list[ScoredLane]:
    """The lanes that a table or figure needs, vanilla first."""
    fixed = {key: [value] for key, value in PAPER.items()}
    if name == "table1":
        return (
            grid_lanes(["lookahead", "rest", "prompt-lookup"], {}, ()) + grid_lanes(["trie"], {"trie": fixed}, [32])[1:]
        )
    if name in ("table2", "table5", "table6"):
        return grid_lanes(["trie"], {"trie": fixed | {"n": N, "prefix": PREFIX}}, [NUM_DRAFT])
    return grid_lanes(["trie"], {"trie": fixed}, NUM_DRAFTS if name == "table3" else [NUM_DRAFT])


def make_tables(name: str, sweep: Sweep, transcripts: Sequence[Transcript], curve: CostCurve) -> list[Table]:
    """The tables that stand for one of the paper's, from a finished sweep of `swept_lanes`. Loops are left out."""
    whole = forecast_sweep(sweep, curve)[0]
    every = range(len(sweep.requests))
    counted = [number for number in every if not sweep.requests[number].looping] or list(every)
    groups = {ALL: counted}
    for number in counted:
        groups.setdefault(group_name(sweep.requests[number].category), []).append(number)
    parts = {group: whole.for_requests(numbers) for group, numbers in groups.items()}
    if name in ("table1", "table3", "table4"):
        return [_by_group(name, sweep, parts)]
    if name == "figure4":
        return [_lengths(sweep, groups)]
    if name == "figure5":
        return [_times(sweep.lanes[1], [transcripts[number] for number in counted], curve)]
    if name == "table6":
        kept = set(counted)
        build = [
            sum(score.build_ms for number, score in sweep.scores(lane) if number in kept)
            for lane in range(len(sweep.lanes))
        ]
        title = "Table 6: ms to build the trie of a request"
        return [_grid(title, sweep, lambda lane: build[lane] / len(counted))]
    chosen = {key: part for key, part in parts.items() if (key == ALL) == (name == "table2")}
    return [
        _grid(f"Table {name[-1]}: speedup, {group}", sweep, lambda lane, part=part: float(part.speedup[lane]))  # type: ignore[misc]
        for group, part in chosen.items()
    ]


def _by_group(name: str, sweep: Sweep, parts: dict[str, Forecast]) -> Table:
    """Every lane's speedup, and but for table 3 its tokens per step, in every group."""
    lanes = [f"{lane.name} {lane.num_draft}" for lane in sweep.lanes[1:]]
    if name == "table3":
        rows = [(group, *map(float, part.speedup[1:])) for group, part in parts.items()]
        return Table("Table 3: speedup", ("category", *lanes), rows)
    columns = [f"{lane} {what}" for lane in lanes for what in ("speedup", "tokens/step")]
    pairs = {group: zip(part.speedup[1:], part.tau[1:], strict=True) for group, part in parts.items()}
    rows = [(group, *(float(cell) for pair in found for cell in pair)) for group, found in pairs.items()]
    return Table(f"Table {name[-1]}: speedup and tokens per step", ("category", *columns), rows)


def _grid(title: str, sweep: Sweep, value: Callable[[int], float]) -> Table:
    """Rows by n, columns by L_p."""
    found = {
        (lane.options["n"], lane.options["prefix"]): value(number) for number, lane in enumerate(sweep.lanes) if number
    }
    rows = [(str(n), *(found[n, prefix] for prefix in PREFIX)) for n in N]
    return Table(title, ("n \\ L_p", *map(str, PREFIX)), rows)


def _lengths(sweep: Sweep, groups: dict[str, list[int]]) -> Table:
    """The share of steps by accepted length, the bonus token counted."""
    rows = []
    for group, numbers in groups.items():
        counts, chosen = Counter[int](), set(numbers)
        for number, score in sweep.scores(1):
            for _, accepted, count in score.steps if number in chosen else ():
                counts[min(1 + accepted, LENGTHS)] += count
        rows.append((group, *(counts[length] / counts.total() for length in range(1, LENGTHS + 1))))
    names = (*map(str, range(1, LENGTHS)), f"{LENGTHS} or more")
    return Table("Figure 4: share of steps by accepted length", ("category", *names), rows)


class _Timed:
    """A drafter with the time of its two calls."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.propose_ms = self.observe_ms = 0.0

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        """Search the trie, and take the best nodes."""
        began = thread_ms()
        tree = self.drafter.propose(context, budget)
        self.propose_ms += since_ms(began)
        return tree

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        """Add the output, unless the trie is static."""
        began = thread_ms()
        self.drafter.observe(tree, verdict)
        self.observe_ms += since_ms(began)


def _times(lane: ScoredLane, transcripts: Sequence[Transcript], curve: CostCurve) -> Table:
    """Where a request's drafting time goes."""
    build, propose, observe, steps = 0.0, 0.0, 0.0, 0
    for each in transcripts:
        began = thread_ms()
        drafter = _Timed(lane.build(DrafterInputs(each.prompt, each.vocab_size, curve=curve), **lane.options))
        build += since_ms(began)
        steps += sum(1 for _ in forced_steps(drafter, each.prompt, each.output, lane.num_draft))
        propose, observe = propose + drafter.propose_ms, observe + drafter.observe_ms
    rows = [("build the trie", build), ("search and draft", propose), ("add the output", observe)]
    total = sum(ms for _, ms in rows)
    found = [(name, ms / len(transcripts), ms / steps, ms / total) for name, ms in rows]
    return Table("Figure 5: drafting time", ("part", "ms a request", "ms a step", "share"), found)
