"""What a race streams: Started, then Steps in race time, then Finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specrace.core.note import Note
from specrace.core.rejection import Check
from specrace.core.settings import MATCH
from specrace.core.tree import TokenTree
from specrace.core.verify import Verdict


@dataclass(frozen=True)
class Timing:
    """Where a step's time went, in milliseconds."""

    draft_ms: float
    target_ms: float
    keep_ms: float

    @property
    def total_ms(self) -> float:
        """The whole step."""
        return self.draft_ms + self.target_ms + self.keep_ms


@dataclass(frozen=True)
class LaneInfo:
    """A lane as it starts: its name, its title, its options, and its verifier ("match", or "rejection" where
    only the distribution is vanilla's).

    `build_ms`: what its drafter took to build its tables, which is on the lane's clock. `prefill_ms`: what a draft
    model took to read the prompt, which is not, for the target's own prefill is on no clock either.
    """

    lane: str
    title: str
    num_draft: int
    options: Mapping[str, Any] = field(default_factory=dict)
    build_ms: float = 0.0
    verifier: str = MATCH
    prefill_ms: float = 0.0


@dataclass(frozen=True)
class Started:
    """The race begins. `about` describes it: question, model, dtype, device, versions, settings, passages."""

    lanes: tuple[LaneInfo, ...]
    prompt_tokens: int
    prefill_ms: float
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One turn of the loop of one lane. `at_ms`: race time at its end.

    `emitted` is the accepted path and the bonus, cut at the end-of-text token and at the length limit. `end` is "" or
    why the lane ends with this step ("eos", "length"). `texts` (one an emitted token; joined they are the printed text)
    and `pieces` (one a node) are filled in by the caller that has the tokenizer. `checks`, under rejection sampling
    only: p, q and the coin of each draft token that was looked at, the accepted ones, then the rejected one. `note`:
    the drafter's details of its draft, if it has any.
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
    note: Note | None = None

    @property
    def accepted_nodes(self) -> tuple[int, ...]:
        """Nodes of the accepted draft tokens that were emitted; what lies beyond the answer's end counts nowhere."""
        return self.verdict.path[1 : len(self.emitted) + 1]

    @property
    def accepted(self) -> int:
        """Accepted draft tokens that were emitted."""
        return len(self.accepted_nodes)

    @property
    def rejected_branch(self) -> list[int]:
        """Nodes of the first branch after the accepted path, which the target rejected; [] beyond the answer's end."""
        branch, node = list[int](), self.verdict.path[-1]
        if self.accepted == self.verdict.accepted:
            while self.tree.children[node]:
                node = next(iter(self.tree.children[node].values()))
                branch.append(node)
        return branch


@dataclass(frozen=True)
class Difference:
    """Where a lane first differs from vanilla: the two tokens between which the target's choice fell, and their gap.

    The gap is in logits; under sampling in what is compared then: logits over the temperature, and the noise.
    """

    position: int
    best: tuple[str, str]
    gap: float


@dataclass(frozen=True)
class LaneResult:
    """A lane's figures at the end (design, section 7). `note` says why a lane was not compared with vanilla."""

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


@dataclass(frozen=True)
class Pace:
    """How steady the machine was, and what was done about it (`specrace.engine.pace`).

    `probes` forwards were timed beside the race, `probe_ms` is what one took before the first step. In units of that
    `low` and `high` are the least and the most during the race, by which steps were corrected; `jumps` is the share of
    probes that fit no pace. Lanes waited `waited_ms` for a processor that others had, which is on no clock. `threads`:
    how many a forward used at the end. `disturbed`: the figures do not count. `note` says it in a sentence.
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
    """The race is over: every lane ended, or it was stopped. `pace` is None in older recordings.

    `cut`: the recording is cut off here, and the results are those of the steps that it has.
    """

    lanes: tuple[LaneResult, ...]
    stopped: bool = False
    pace: Pace | None = None
    cut: bool = False


Event = Started | Step | Finished
