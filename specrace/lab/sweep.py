"""Requests x lanes x a grid of settings, by forced decoding: in parallel, and safe to kill at any moment.

A *cell* is a lane with its settings on a shard of the requests. A folder holds a sweep: `sweep.json` describes it and
is written whole before anything else; `cells.jsonl` grows by a line for each finished cell, synchronised with the
disk. A line that a kill cut off is dropped, and its cell scored again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import product
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.files import explained, read_text, write_whole
from specrace.core.metrics import LaneMetrics
from specrace.drafters import find_method
from specrace.lab.score import ScoredLane, Tally, longest_loop, score_output
from specrace.lab.transcripts import Transcript
from specrace.ngrams.past import PastOutputs

SHARD = 16
MAX_LANES = 2000
# Options that decide the draft size of an engine's drafter, and what they count beyond draft tokens.
SIZES = {"num_speculative_tokens": 0, "max_draft_len": 0, "size_m": 0, "n_max": 0, "num_draft_tokens": 1}
DESCRIPTION, CELLS = "sweep.json", "cells.jsonl"
# Below so many output tokens x lanes starting processes takes longer than scoring.
WORTH_PROCESSES = 100_000
_MAX_BYTES = 4_000_000_000
_HINT = "give a folder that sweep --out wrote"

# (lane, shard), by number.
Cell = tuple[int, int]


@dataclass(frozen=True)
class Request:
    """What the figures need to know of a request."""

    category: str
    prompt_tokens: int
    output_tokens: int
    looping: bool


@dataclass(frozen=True)
class RequestScore:
    """One request in one lane. `steps`: (draft tokens, accepted ones, number of such steps)."""

    steps: tuple[tuple[int, int, int], ...]
    draft_ms: float
    build_ms: float

    @classmethod
    def of(cls, tally: Tally) -> RequestScore:
        """The score in a tally of one output."""
        steps = tuple(sorted((*step, count) for step, count in tally.steps.items()))
        return cls(steps, round(tally.metrics.draft_ms, 3), round(tally.build_ms, 3))

    def tally(self, request: Request) -> Tally:
        """The reverse."""
        counts = {(drafted, accepted): count for drafted, accepted, count in self.steps}
        metrics = LaneMetrics(
            request.output_tokens,
            sum(counts.values()),
            sum(drafted * count for (drafted, _), count in counts.items()),
            sum(accepted * count for (_, accepted), count in counts.items()),
            self.draft_ms,
        )
        tally = Tally(metrics, 1, build_ms=self.build_ms)
        tally.steps.update(counts)
        if request.looping:
            tally.looping, tally.loops = 1, metrics
        return tally


@dataclass
class Sweep:
    """Lanes with their settings, requests, and the scores of the cells that are finished.

    `left_out`: how many more requests there were, whose output loops.
    """

    lanes: tuple[ScoredLane, ...]
    requests: tuple[Request, ...]
    curve: CostCurve | None = None
    keep_outputs: bool = False
    fingerprint: str = ""
    cells: dict[Cell, tuple[RequestScore, ...]] = field(default_factory=dict)
    left_out: int = 0

    @classmethod
    def of(
        cls,
        lanes: Sequence[ScoredLane],
        transcripts: Sequence[Transcript],
        curve: CostCurve | None = None,
        keep_outputs: bool = False,
    ) -> Sweep:
        """A sweep without scores yet."""
        digest = hashlib.sha256()
        for each in transcripts:
            digest.update(json.dumps([each.prompt, each.output]).encode())
        requests = tuple(
            Request(each.category, len(each.prompt), len(each.output), longest_loop(each.output) > 0)
            for each in transcripts
        )
        return cls(tuple(lanes), requests, curve, keep_outputs, digest.hexdigest())

    @property
    def all_cells(self) -> list[Cell]:
        """Every cell, shard by shard, so that all lanes have figures early."""
        shards = range(-(-len(self.requests) // SHARD))
        return [(lane, shard) for shard in shards for lane in range(len(self.lanes))]

    @property
    def finished(self) -> bool:
        """Whether every cell has its scores."""
        return len(self.cells) == len(self.all_cells)

    def scores(self, lane: int) -> Iterator[tuple[int, RequestScore]]:
        """(number of the request, score) of a lane, as far as its cells are finished."""
        for shard in sorted(shard for number, shard in self.cells if number == lane):
            yield from enumerate(self.cells[lane, shard], shard * SHARD)

    def words(self, lane: int) -> str:
        """A lane's options that differ among the lanes of its name, and its draft size."""
        own = self.lanes[lane]
        same = [each.options for each in self.lanes if each.name == own.name]
        varied = [f"{name}={value}" for name, value in own.options.items() if any(each[name] != value for each in same)]
        return " ".join([*varied, f"num_draft={own.num_draft}"])

    def tally(self, lane: int, chosen: Container[int]) -> Tally:
        """A lane's totals over the `chosen` requests, as far as they are scored."""
        total = Tally()
        for number, score in self.scores(lane):
            if number in chosen:
                total.merge(score.tally(self.requests[number]))
        return total

    def as_json(self) -> dict[str, Any]:
        """What is swept, without scores."""
        return {
            "shard": SHARD,
            "fingerprint": self.fingerprint,
            "keep_outputs": self.keep_outputs,
            "cost_curve": self.curve and self.curve.as_json(),
            "lanes": [lane.describe() for lane in self.lanes],
            "requests": [asdict(each) for each in self.requests],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Sweep:
        """The reverse. Raises InputError, ValueError, TypeError or KeyError."""
        if found["shard"] != SHARD:
            raise ValueError("shards of another size")
        curve = found["cost_curve"] and CostCurve.from_json(found["cost_curve"])
        lanes = tuple(ScoredLane.of(each["lane"], each["options"], each["num_draft"]) for each in found["lanes"])
        requests = tuple(Request(**each) for each in found["requests"])
        return cls(lanes, requests, curve, bool(found["keep_outputs"]), str(found["fingerprint"]))


def grid_lanes(
    names: Iterable[str], grid: Mapping[str, Mapping[str, Sequence[Any]]], num_drafts: Sequence[int]
) -> list[ScoredLane]:
    """Vanilla and every combination of the settings of each named lane.

    `grid`: lane -> option -> values. `num_drafts` also set the option that decides a twin's draft size; they leave
    alone lanes that cut their own drafts. Raises InputError for a bad option, a lane that is not named, or too many.
    """
    names = dict.fromkeys(("vanilla", *names))
    for lane_name in grid:
        if lane_name not in names:
            raise InputError(f"--grid has settings of {lane_name}, which is not swept; add it to --lanes.")
    found: dict[str, ScoredLane] = {}
    for name in names:
        options = dict(grid.get(name, {}))
        method = find_method(name)
        size = next((each.name for each in method.options if each.name in SIZES), None)
        if size is not None and num_drafts and size not in options:
            options[size] = [number + SIZES[size] for number in num_drafts]
        own = num_drafts if num_drafts and size is None and method.profile and name != "vanilla" else (None,)
        if len(found) + math.prod(map(len, (*options.values(), own))) > MAX_LANES:
            raise InputError(f"The grid has more than {MAX_LANES} combinations; leave some values out.")
        for *values, number in product(*options.values(), own):
            lane = ScoredLane.of(name, dict(zip(options, values, strict=True)), number)
            found[json.dumps(lane.describe())] = lane
    return list(found.values())


class SweepFolder:
    """A sweep on disk, to which finished cells are appended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self, *, resume: bool) -> bool:
        """Whether the folder holds a sweep. Raises InputError for one that is not to be resumed."""
        found = any((self.folder / name).exists() for name in (DESCRIPTION, CELLS))
        if found and not resume:
            raise InputError(f"{shorten(self.folder)} holds a sweep; add --resume, or give another --out.")
        return found

    def open(self, sweep: Sweep, *, resume: bool) -> None:
        """Write the description of `sweep`, or with `resume` read the finished cells of the same one into it.

        Raises InputError for a folder that holds another sweep, or one that is not to be resumed.
        """
        file = self.folder / DESCRIPTION
        if not self.exists(resume=resume):
            with explained(file, "--out"):
                write_whole(file, (json.dumps(sweep.as_json(), ensure_ascii=False) + "\n").encode())
            return
        if _read_description(file).as_json() != sweep.as_json():
            raise InputError(
                f"{shorten(self.folder)} holds a sweep of other logs, lanes or settings; give another --out."
            )
        self.read_cells(sweep)

    @classmethod
    def load(cls, folder: Path) -> Sweep:
        """A finished sweep. Raises InputError for anything else."""
        sweep = _read_description(folder / DESCRIPTION)
        cls(folder).read_cells(sweep)
        if not sweep.finished:
            count = f"{len(sweep.cells)} of {len(sweep.all_cells)}"
            raise InputError(f"{shorten(folder)} holds {count} cells of a sweep; finish it with sweep --resume.")
        return sweep

    def read_cells(self, sweep: Sweep) -> None:
        """The finished cells into `sweep`, each once; a line that was cut off is dropped. Raises InputError."""
        file = self.folder / CELLS
        if not file.exists():
            return
        text = read_text(file, _MAX_BYTES, _HINT)
        whole = text[: text.rfind("\n") + 1]
        known = set(sweep.all_cells)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                cell = (int(row["lane"]), int(row["shard"]))
                scores = tuple(RequestScore(tuple(map(tuple, steps)), *times) for steps, *times in row["scores"])
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(f"{shorten(file)}, line {number}: this is no cell of a sweep; {_HINT}.") from error
            if cell in known:
                sweep.cells.setdefault(cell, scores)
        if whole != text:
            with explained(file, "--out"):
                os.truncate(file, len(whole.encode()))

    def append(self, cell: Cell, scores: Sequence[RequestScore]) -> None:
        """Add a finished cell. When this returns, it outlives a kill."""
        rows = [[each.steps, each.draft_ms, each.build_ms] for each in scores]
        line = json.dumps({"lane": cell[0], "shard": cell[1], "scores": rows}, separators=(",", ":")) + "\n"
        file = self.folder / CELLS
        with explained(file, "--out"), file.open("ab") as stream:
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())


def _read_description(file: Path) -> Sweep:
    try:
        return Sweep.from_json(json.loads(read_text(file, _MAX_BYTES, _HINT)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{shorten(file)} describes no sweep of this version; {_HINT}.") from error


def run_sweep(
    sweep: Sweep,
    transcripts: Sequence[Transcript],
    *,
    folder: SweepFolder | None = None,
    processes: int = 1,
    ray: str = "",
    on_progress: Callable[[Cell], object] = str,
) -> None:
    """Score the cells that are missing; `on_progress` gets each once it is kept.

    `ray` is the address of a Ray cluster to score them, or "local" for one of so many workers here.
    """
    work = len(sweep.lanes) * sum(each.output_tokens for each in sweep.requests)
    jobs = _jobs(sweep, transcripts)
    if ray:
        found = _in_ray(jobs, ray, processes)
    elif processes == 1 or work < WORTH_PROCESSES:
        found = (score_shard(*job) for job in jobs)
    else:
        found = _in_processes(jobs, processes)
    for cell, scores in found:
        if folder is not None:
            folder.append(cell, scores)
        sweep.cells[cell] = scores
        on_progress(cell)


# The arguments of `score_shard`, and what it returns.
Job = tuple[Cell, ScoredLane, Sequence[Transcript], PastOutputs | None, CostCurve]
Scored = tuple[Cell, tuple[RequestScore, ...]]


def score_shard(
    cell: Cell, lane: ScoredLane, transcripts: Sequence[Transcript], past: PastOutputs | None, curve: CostCurve
) -> Scored:
    """The scores of a cell; `past` are the outputs before the first transcript, to which these are added."""
    found = []
    for each in transcripts:
        others = None if past is None else past.of_others(each.prompt)
        found.append(RequestScore.of(score_output(lane, each, curve=curve, past=others)))
        if past is not None:
            past.add(each.output, each.prompt)
    return cell, tuple(found)


def _jobs(sweep: Sweep, transcripts: Sequence[Transcript]) -> Iterator[Job]:
    """The missing cells, each with the outputs before it."""
    past = PastOutputs() if sweep.keep_outputs else None
    done, curve = 0, sweep.curve or ASSUMED_GPU
    for lane, shard in sweep.all_cells:
        start = shard * SHARD
        if past is not None:
            for each in transcripts[done:start]:
                past.add(each.output, each.prompt)
            done = start
        if (lane, shard) not in sweep.cells:
            before = None if past is None else past.copy()
            yield (lane, shard), sweep.lanes[lane], transcripts[start : start + SHARD], before, curve


def _in_processes(jobs: Iterable[Job], processes: int) -> Iterator[Scored]:
    """The cells in the order in which so many processes finish them."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start_worker)
    try:
        for future in as_completed([pool.submit(score_shard, *job) for job in jobs]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _in_ray(jobs: Iterable[Job], address: str, processes: int) -> Iterator[Scored]:
    """The cells in the order in which a cluster finishes them. Raises InputError without Ray, or without a cluster."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise InputError("--ray needs Ray; install specrace[ray], or leave it out.") from error
    where = {"num_cpus": processes} if address == "local" else {"address": address}
    try:
        ray.init(**where, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"There is no Ray cluster at {shorten(address)}; give local, or its address.") from error
    try:
        score = ray.remote(score_shard)
        waiting = [score.remote(*job) for job in jobs]
        while waiting:
            done, waiting = ray.wait(waiting)
            yield from ray.get(done)
    finally:
        ray.shutdown()


def _start_worker() -> None:
    """Leave interrupts to the parent, and end when it is killed, where a worker would wait for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
