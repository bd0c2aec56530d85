"""The events of a race: Started, Steps in race time, Finished, and Repeated after each further run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specrace.core.note import Note
from specrace.core.rejection import Check
from specrace.core.settings import MATCH
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict

# The key in `Started.about` of a list of sentences: why each server that does not take part was left out.
LEFT_OUT = "servers_left_out"


@dataclass(frozen=True)
class Timing:
    """The parts of a step's time, in milliseconds."""

    draft_ms: float
    target_ms: float
    # To verify the draft, and to keep the accepted path in the KV cache.
    keep_ms: float

    @property
    def total_ms(self) -> float:
        """The sum of the three parts."""
        return self.draft_ms + self.target_ms + self.keep_ms


@dataclass(frozen=True)
class Served:
    """What is known about a lane that a server decoded; its times are those that the client saw, network included.

    `engine` and `model`: software with its version, and the model's name, as the server gave them. `chunks_are_steps`:
    each streamed chunk held the tokens of one step. If not, `note` says why, and only `steps`, `drafted` and
    `accepted`, the server's own totals, are known; each is None where the server did not report it. `first_tokens`: the
    number of tokens in the first chunk, which arrived before the lane's clock started.

    `sends_ids`: the server streams token ids. If not, each chunk is a `Step` without tokens, with the chunk's text, and
    `tokens` is the server's own count for the whole answer, or None; `first_tokens` is then 0 unless each chunk had one
    token. `together`: the race's servers answered at the same time.
    """

    engine: str
    model: str
    chunks_are_steps: bool
    first_tokens: int
    steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    note: str = ""
    sends_ids: bool = True
    tokens: int | None = None
    together: bool = False


@dataclass(frozen=True)
class LaneInfo:
    """A lane before its first step; `num_draft` is the most draft tokens of a step.

    `verifier`: "match" or "rejection". `build_ms`: the time to build the drafter's tables for this request, which is on
    the lane's clock. `shared_ms`: the time spent so far on tables of the documents and of earlier answers, which a
    server would build once for all requests. `prefill_ms`: the time in which a draft model read the prompt, or a server
    answered with its first token. These two times are on no clock, like the target's prefill. `served`: not None if a
    server decoded it. `reference`: the server's lane with which this lane is compared, itself if it is that lane; "" if
    it is compared with vanilla.
    """

    lane: str
    title: str
    num_draft: int
    options: Mapping[str, Any] = field(default_factory=dict)
    build_ms: float = 0.0
    verifier: str = MATCH
    prefill_ms: float = 0.0
    shared_ms: float = 0.0
    served: Served | None = None
    reference: str = ""


@dataclass(frozen=True)
class Started:
    """The start of a race; `about` holds the question, model, dtype, device, versions, settings and passages."""

    lanes: tuple[LaneInfo, ...]
    prompt_tokens: int
    prefill_ms: float
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step of one lane; `at_ms` is the race time at its end.

    `emitted`: the accepted path and the bonus token, cut at the end-of-text token and at the length limit. `end`: why
    the lane ends with this step ("eos" or "length"); "" if it does not. `texts` has one entry for each emitted token
    (joined, they are the printed text), `pieces` the text of each node's token by itself; both are added by a caller
    that has the tokenizer.
    `drafted`: the number of draft tokens of a server's step, whose tree lacks the rejected ones; None if the server did
    not report it, and in our own lanes, whose trees have all of them.
    `checks`, under rejection sampling only: p, q and the coin of each test; a chain has one for each draft token up to
    the first rejected one, a tree one for each draw that was tried. `checked_nodes`: the node of each test in a tree;
    None for a chain. `note`: the drafter's details.
    """

    lane: str
    index: int
    at_ms: float
    tree: TokenTree
    verdict: Verdict
    emitted: tuple[int, ...]
    timing: Timing
    end: str = ""
    texts: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    checks: tuple[Check, ...] | None = None
    checked_nodes: tuple[int, ...] | None = None
    note: Note | None = None
    drafted: int | None = None

    @property
    def num_draft(self) -> int:
        """The number of draft tokens, including those that the tree lacks."""
        return self.tree.num_draft if self.drafted is None else self.drafted

    @property
    def accepted_nodes(self) -> tuple[int, ...]:
        """Nodes of the accepted draft tokens that were emitted; tokens past the end of the output do not count."""
        return self.verdict.path[1 : len(self.emitted) + 1]

    @property
    def accepted(self) -> int:
        """Accepted draft tokens that were emitted."""
        return len(self.accepted_nodes)

    @property
    def rejected_branch(self) -> list[int]:
        """Nodes of the first rejected branch below the accepted path; [] if the output ended within the path."""
        branch, node = list[int](), self.verdict.path[-1]
        if self.accepted == self.verdict.accepted:
            while self.tree.children[node]:
                node = next(iter(self.tree.children[node].values()))
                branch.append(node)
        return branch


@dataclass(frozen=True)
class Difference:
    """Where a lane first differs from vanilla: the target's two best tokens there, and the gap between them.

    The gap is in logits; under sampling it is in logits over temperature, plus the noise that makes the draw
    (`specrace.model.sampling`).
    """

    position: int
    best: tuple[str, str]
    gap: float


@dataclass(frozen=True)
class LaneResult:
    """A lane's final metrics. `note`: why the lane was not compared with vanilla.

    `tau`: tokens per step. `loop_tokens`: the length of the loop in which the output ends; 0 if it ends in none.
    Of a lane that a server decoded, `speedup` is 0, because its time is not race time, and figures that the server did
    not report are 0, too. `differs_at`: the first token that differs from the lane's reference, if that is not vanilla;
    in a text without token ids, the first character.
    """

    lane: str
    tokens: int
    steps: int
    tau: float
    drafted_per_step: float
    acceptance_rate: float
    decode_ms: float
    tokens_per_s: float
    speedup: float
    identical: bool | None
    first_difference: Difference | None
    end: str
    loop_tokens: int
    text: str = ""
    note: str = ""
    differs_at: int | None = None


@dataclass(frozen=True)
class Pace:
    """How steady the machine was (`specrace.engine.pace`); `note` is the summary in a sentence.

    `probes` forwards were timed between steps. `probe_ms` is the latency of one before the first step, and `low` and
    `high` are the range of the slowdown relative to it. `jumps`: the share of probes that no steady pace explains.
    `waited_ms`: the time lanes waited for a processor, which is on no clock. `threads`: the number of threads of a
    forward at the end. `disturbed`: the machine was too unsteady for the metrics to be used.
    """

    probes: int
    probe_ms: float
    low: float
    high: float
    jumps: float
    waited_ms: float
    threads: int
    disturbed: bool
    note: str


@dataclass(frozen=True)
class Finished:
    """The end of a race: every lane has ended, or the race was `stopped`. `pace` is None in older recordings.

    `cut`: the recording was truncated here, and the results were computed from the steps that it has.
    """

    lanes: tuple[LaneResult, ...]
    stopped: bool = False
    pace: Pace | None = None
    cut: bool = False


@dataclass(frozen=True)
class LaneSpread:
    """A lane's speedup over several runs: median, minimum (`low`) and maximum (`high`); `tokens_per_s` is a median.

    `slowest` and `fastest`: the range of the tokens per second of a lane that a server decoded, which has no speedup.
    """

    lane: str
    speedup: float
    low: float
    high: float
    tokens_per_s: float
    slowest: float = 0.0
    fastest: float = 0.0


@dataclass(frozen=True)
class Repeated:
    """The metrics of a race that was run several times; each such event replaces the one before it.

    `runs`: the number of runs that these metrics come from, the first included. Only undisturbed runs count, unless all
    were disturbed. `disturbed`: too few runs were undisturbed, so the metrics do not count. `note`: the summary in a
    sentence.
    """

    runs: int
    lanes: tuple[LaneSpread, ...]
    disturbed: bool
    note: str


Event = Started | Step | Finished | Repeated


def ending(events: Sequence[Event]) -> tuple[Finished, Repeated | None]:
    """The Finished of a whole race, and its last Repeated, if any."""
    last = events[-1]
    finished = next(event for event in reversed(events) if isinstance(event, Finished))
    return finished, last if isinstance(last, Repeated) else None
