"""A sweep: requests x lanes x a grid of settings, scored by forced decoding; if it is killed, it can be resumed.

A lane is a drafting method with its settings; forced decoding replays logged outputs without a model. A *cell* is one
lane, with its settings, on one shard of the requests. In a sweep's folder, `sweep.json` describes the sweep and is
written first, as a whole; `cells.jsonl` grows by one line for each finished cell, which is flushed to the disk. If a
kill cuts a line off, the line is dropped and its cell is scored again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import as_input_error, read_text, write_atomically
from specrace.core.metrics import LaneMetrics
from specrace.engine.lane_name import parse_lane
from specrace.lab.logs.request_options import OPTIONS
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, Tally, longest_loop

# Requests in a cell: few, so that a kill loses little work and `halving` can begin with a small sample. Not tuned; a
# sweep on the disk with shards of another size is refused.
SHARD_SIZE = 16
# A grid beyond this was hardly meant. The number is a guess.
MAX_LANES = 2000
# Options that set the draft size of a twin, our copy of another engine's drafter -> by how much their value exceeds the
# number of draft tokens: SGLang's num_draft_tokens counts the root of the tree, too.
DRAFT_SIZE_OPTIONS = {"num_speculative_tokens": 0, "max_draft_len": 0, "size_m": 0, "n_max": 0, "num_draft_tokens": 1}
DESCRIPTION, CELLS = "sweep.json", "cells.jsonl"
# Larger files are refused, because a file is read into memory as a whole.
_MAX_BYTES = 4_000_000_000
_HINT = "give a folder that sweep --out wrote"

# The numbers of a lane and of a shard.
Cell = tuple[int, int]


@dataclass(frozen=True)
class Request:
    """What the metrics need to know about a request.

    `options`: those that may change how an engine drafts. Sweeps of older versions have none, so they do not count when
    two requests are compared.
    """

    category: str
    prompt_tokens: int
    output_tokens: int
    looping: bool
    options: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class RequestScore:
    """One request in one lane. `steps`: (draft tokens, accepted tokens, number of such steps)."""

    steps: tuple[tuple[int, int, int], ...]
    draft_ms: float
    build_ms: float

    @classmethod
    def from_tally(cls, tally: Tally) -> RequestScore:
        """The score of the one output that was tallied."""
        steps = tuple(sorted((*step, count) for step, count in tally.steps.items()))
        return cls(steps, round(tally.metrics.draft_ms, 3), round(tally.build_ms, 3))

    def to_tally(self, request: Request) -> Tally:
        """The tally of this one output; `request` tells its length and whether it loops."""
        counts = {(drafted, accepted): count for drafted, accepted, count in self.steps}
        metrics = LaneMetrics(
            tokens=request.output_tokens,
            steps=sum(counts.values()),
            drafted=sum(drafted * count for (drafted, _), count in counts.items()),
            accepted=sum(accepted * count for (_, accepted), count in counts.items()),
            draft_ms=self.draft_ms,
        )
        tally = Tally(metrics, 1, build_ms=self.build_ms)
        tally.steps.update(counts)
        if request.looping:
            tally.looping, tally.loops = 1, metrics
        return tally


# A cell and the scores of its requests.
ScoredCell = tuple[Cell, tuple[RequestScore, ...]]


@dataclass
class Sweep:
    """Lanes with their settings, requests, and the scores of the finished cells.

    `fingerprint`: SHA-256 of the prompts and outputs. `num_looping_left_out`: how many requests are not in `requests`,
    because their output loops.
    """

    lanes: tuple[ScoredLane, ...]
    requests: tuple[Request, ...]
    curve: CostCurve | None = None
    keep_outputs: bool = False
    fingerprint: str = ""
    cells: dict[Cell, tuple[RequestScore, ...]] = field(default_factory=dict)
    num_looping_left_out: int = 0

    @classmethod
    def of(
        cls,
        lanes: Sequence[ScoredLane],
        transcripts: Sequence[Transcript],
        curve: CostCurve | None = None,
        keep_outputs: bool = False,
    ) -> Sweep:
        """A new sweep, without scores. With `keep_outputs` lanes may draft from outputs of earlier requests."""
        digest = hashlib.sha256()
        for transcript in transcripts:
            digest.update(json.dumps([transcript.prompt, transcript.output]).encode())
        requests = tuple(
            Request(
                category=transcript.category,
                prompt_tokens=len(transcript.prompt),
                output_tokens=len(transcript.output),
                looping=longest_loop(transcript.output) > 0,
                options=transcript.options,
            )
            for transcript in transcripts
        )
        return cls(
            lanes=tuple(lanes),
            requests=requests,
            curve=curve,
            keep_outputs=keep_outputs,
            fingerprint=digest.hexdigest(),
        )

    @property
    def all_cells(self) -> list[Cell]:
        """Every cell, shard by shard, so that all lanes have scores early."""
        # Rounded up: the last shard may be smaller.
        shards = range(-(-len(self.requests) // SHARD_SIZE))
        return [(lane, shard) for shard in shards for lane in range(len(self.lanes))]

    @property
    def finished(self) -> bool:
        """Whether every cell has its scores."""
        return len(self.cells) == len(self.all_cells)

    def scores(self, lane: int) -> Iterator[tuple[int, RequestScore]]:
        """(number of the request, score) of a lane, from its finished cells."""
        for shard in sorted(shard for cell_lane, shard in self.cells if cell_lane == lane):
            yield from enumerate(self.cells[lane, shard], shard * SHARD_SIZE)

    def varied_settings(self, number: int) -> str:
        """A lane's options that differ among the lanes of its name, and its draft size."""
        lane = self.lanes[number]
        same_name = [other.options for other in self.lanes if other.name == lane.name]
        varied = [
            f"{name}={value}"
            for name, value in lane.options.items()
            if any(options[name] != value for options in same_name)
        ]
        return " ".join([*varied, f"num_draft={lane.num_draft}"])

    def tally(self, lane: int, requests: Container[int]) -> Tally:
        """A lane's totals over the requests with these numbers, as far as they are scored."""
        total = Tally()
        for number, score in self.scores(lane):
            if number in requests:
                total.merge(score.to_tally(self.requests[number]))
        return total

    def as_json(self) -> dict[str, Any]:
        """The description of the sweep, without scores."""
        return {
            "shard": SHARD_SIZE,
            "fingerprint": self.fingerprint,
            "keep_outputs": self.keep_outputs,
            "cost_curve": None if self.curve is None else self.curve.as_json(),
            "lanes": [lane.describe() for lane in self.lanes],
            "requests": [asdict(request) for request in self.requests],
        }

    def is_of(self, other: Sweep) -> bool:
        """Whether both sweeps have the same logs, lanes and settings."""
        # Requests are compared as objects, which ignores their options.
        first, second = (sweep.as_json() | {"requests": None} for sweep in (self, other))
        return first == second and self.requests == other.requests

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> Sweep:
        """The sweep that `as_json` described, without scores.

        Raises InputError, ValueError, TypeError or KeyError for anything else.
        """
        if description["shard"] != SHARD_SIZE:
            raise ValueError("shards of another size")
        curve = description["cost_curve"] and CostCurve.from_json(description["cost_curve"])
        lanes = tuple(ScoredLane.of(row["lane"], row["options"], row["num_draft"]) for row in description["lanes"])
        requests = tuple(
            Request(**row | {"options": tuple(name for name in row.get("options", ()) if name in OPTIONS)})
            for row in description["requests"]
        )
        return cls(
            lanes=lanes,
            requests=requests,
            curve=curve,
            keep_outputs=bool(description["keep_outputs"]),
            fingerprint=str(description["fingerprint"]),
        )


def grid_lanes(
    names: Iterable[str], grid: Mapping[str, Mapping[str, Sequence[Any]]], num_drafts: Sequence[int]
) -> list[ScoredLane]:
    """Vanilla and every combination of the settings of each named lane.

    `grid`: method -> option -> values; a lane's own options, as in "trie:n=3", replace the grid's. `num_drafts` also
    set the option that decides a twin's draft size; lanes that cut their own drafts ignore them. Raises InputError for
    a bad option, for a method in the grid that is not swept, and for too many combinations.
    """
    parsed_lanes = [parse_lane(name) for name in dict.fromkeys(("vanilla", *names))]
    for name in grid:
        if name not in [lane.method.name for lane in parsed_lanes]:
            raise InputError(f"--grid has settings of {name}, which is not swept; add it to --lanes.")
    # Keyed by description, because two values may mean the same setting.
    lanes: dict[str, ScoredLane] = {}
    for parsed in parsed_lanes:
        method = parsed.method
        name = method.name
        options = {**grid.get(name, {}), **{option: [value] for option, value in parsed.options.items()}}
        size_option = next((option.name for option in method.options if option.name in DRAFT_SIZE_OPTIONS), None)
        if size_option is not None and num_drafts and size_option not in options:
            options[size_option] = [number + DRAFT_SIZE_OPTIONS[size_option] for number in num_drafts]
        # None: the lane's default. A method's profile tells what draft tokens gain; without one, the method's options
        # or its drafter decide the size.
        sizes: Sequence[int | None] = (None,)
        if num_drafts and size_option is None and method.profile and name != "vanilla":
            sizes = num_drafts
        if len(lanes) + math.prod(map(len, (*options.values(), sizes))) > MAX_LANES:
            raise InputError(f"The grid has more than {MAX_LANES} combinations; leave some values out.")
        for *values, num_draft in product(*options.values(), sizes):
            lane = ScoredLane.of(name, dict(zip(options, values, strict=True)), num_draft)
            lanes[json.dumps(lane.describe())] = lane
    return list(lanes.values())


class SweepFolder:
    """A sweep on disk, to which finished cells are appended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def holds_sweep(self) -> bool:
        """Whether the folder holds a sweep, perhaps an unfinished one."""
        return any((self.folder / name).exists() for name in (DESCRIPTION, CELLS))

    def refuse_unless(self, *, resume: bool) -> None:
        """Raise InputError if the folder holds a sweep and `resume` is false."""
        if self.holds_sweep() and not resume:
            raise InputError(f"{shorten(self.folder)} holds a sweep; add --resume, or give another --out.")

    def open(self, sweep: Sweep, *, resume: bool) -> None:
        """Write the description of `sweep`, or, if the folder holds it already, read its finished cells into it.

        Raises InputError for a folder with another sweep, and for one with this sweep if `resume` is false.
        """
        file = self.folder / DESCRIPTION
        self.refuse_unless(resume=resume)
        if not self.holds_sweep():
            with as_input_error(file, "--out"):
                write_atomically(file, (json.dumps(sweep.as_json(), ensure_ascii=False) + "\n").encode())
            return
        if not _read_description(file).is_of(sweep):
            raise InputError(
                f"{shorten(self.folder)} holds a sweep of other logs, lanes or settings; give another --out."
            )
        self.read_cells(sweep)

    @classmethod
    def load(cls, folder: Path) -> Sweep:
        """Read a finished sweep. Raises InputError for anything else."""
        sweep = _read_description(folder / DESCRIPTION)
        cls(folder).read_cells(sweep)
        if not sweep.finished:
            count = f"{len(sweep.cells)} of {len(sweep.all_cells)}"
            raise InputError(f"{shorten(folder)} holds {count} cells of a sweep; finish it with sweep --resume.")
        return sweep

    def read_cells(self, sweep: Sweep) -> None:
        """Read the finished cells into `sweep`, and cut off a last line that is incomplete. Raises InputError."""
        file = self.folder / CELLS
        if not file.exists():
            return
        text = read_text(file, _MAX_BYTES, _HINT)
        complete_lines = text[: text.rfind("\n") + 1]
        all_cells = set(sweep.all_cells)
        for number, line in enumerate(complete_lines.splitlines(), 1):
            try:
                row = json.loads(line)
                cell = (int(row["lane"]), int(row["shard"]))
                # A score is [steps, draft_ms, build_ms], as `append` writes it.
                scores = tuple(RequestScore(tuple(map(tuple, steps)), *times) for steps, *times in row["scores"])
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(f"{shorten(file)}, line {number}: this is not a cell of a sweep; {_HINT}.") from error
            if cell in all_cells:
                sweep.cells.setdefault(cell, scores)
        if complete_lines != text:
            with as_input_error(file, "--out"):
                os.truncate(file, len(complete_lines.encode()))

    def append(self, cell: Cell, scores: Sequence[RequestScore]) -> None:
        """Append a finished cell. Once this returns, a kill cannot lose the cell."""
        rows = [[score.steps, score.draft_ms, score.build_ms] for score in scores]
        line = json.dumps({"lane": cell[0], "shard": cell[1], "scores": rows}, separators=(",", ":")) + "\n"
        file = self.folder / CELLS
        with as_input_error(file, "--out"), file.open("ab") as stream:
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())


def _read_description(file: Path) -> Sweep:
    try:
        return Sweep.from_json(json.loads(read_text(file, _MAX_BYTES, _HINT)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{shorten(file)} does not describe a sweep of this version; {_HINT}.") from error
