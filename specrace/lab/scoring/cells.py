"""Scores the missing cells of a sweep: in this process, in a pool of processes, or on a Ray cluster.

A cell is one lane, a drafting method with its settings, on one shard of the requests. There are two pools, this one and
that of `forks.py`, because each works where the other does not. This one starts new interpreters, which is safe on
every system, whatever threads the process has, and its workers exit at once if the sweep is killed. `forks.py` serves
the process that reads visitors' files, which may not start interpreters.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError, shorten
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.scoring.score import ScoredLane, score_output
from specrace.lab.scoring.sweep import SHARD_SIZE, Cell, RequestScore, ScoredCell, Sweep, SweepFolder
from specrace.ngrams.past import PastOutputs

# With fewer output tokens x lanes, starting processes takes longer than scoring.
MIN_PARALLEL_WORK = 100_000

# The arguments of `score_shard`.
Job = tuple[Cell, ScoredLane, Sequence[Transcript], PastOutputs | None, CostCurve]


def run_sweep(
    sweep: Sweep,
    transcripts: Sequence[Transcript],
    *,
    folder: SweepFolder | None = None,
    processes: int = 1,
    ray: str = "",
    on_progress: Callable[[Cell], object] | None = None,
) -> None:
    """Score the missing cells, in `processes` processes or on Ray; `on_progress` gets each cell once it is stored.

    `ray`: the address of a Ray cluster, or "local" for one with `processes` workers on this machine.
    """
    work = len(sweep.lanes) * sum(request.output_tokens for request in sweep.requests)
    jobs = _jobs(sweep, transcripts)
    if ray:
        scored = _in_ray(jobs, ray, processes)
    elif processes == 1 or work < MIN_PARALLEL_WORK:
        scored = (score_shard(*job) for job in jobs)
    else:
        scored = _in_processes(jobs, processes)
    for cell, scores in scored:
        if folder is not None:
            folder.append(cell, scores)
        sweep.cells[cell] = scores
        if on_progress is not None:
            on_progress(cell)


def score_shard(
    cell: Cell, lane: ScoredLane, transcripts: Sequence[Transcript], past: PastOutputs | None, curve: CostCurve
) -> ScoredCell:
    """Score a cell. `past`: outputs of earlier requests, to which those of these transcripts are added."""
    scores = []
    for transcript in transcripts:
        # A drafter must not draft from an earlier answer to the same prompt.
        usable_past = None if past is None else past.excluding(transcript.prompt)
        scores.append(RequestScore.from_tally(score_output(lane, transcript, curve=curve, past=usable_past)))
        if past is not None:
            past.add(transcript.output, transcript.prompt)
    return cell, tuple(scores)


def _jobs(sweep: Sweep, transcripts: Sequence[Transcript]) -> Iterator[Job]:
    """A job for each missing cell, with the outputs of the requests before it."""
    past = PastOutputs() if sweep.keep_outputs else None
    # Drafters that size their own trees need a cost curve; without a measured one, they get an assumed one.
    curve = sweep.curve or ASSUMED_GPU
    # The number of transcripts whose outputs are in `past`.
    num_added = 0
    for lane, shard in sweep.all_cells:
        start = shard * SHARD_SIZE
        if past is not None:
            for transcript in transcripts[num_added:start]:
                past.add(transcript.output, transcript.prompt)
            num_added = start
        if (lane, shard) not in sweep.cells:
            earlier = None if past is None else past.copy()
            yield (lane, shard), sweep.lanes[lane], transcripts[start : start + SHARD_SIZE], earlier, curve


def _in_processes(jobs: Iterable[Job], processes: int) -> Iterator[ScoredCell]:
    """Score cells in a pool of processes, in the order in which they finish."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start_worker)
    try:
        for future in as_completed([pool.submit(score_shard, *job) for job in jobs]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _in_ray(jobs: Iterable[Job], address: str, processes: int) -> Iterator[ScoredCell]:
    """Score cells on a Ray cluster, in the order in which they finish. Raises InputError without Ray or a cluster."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise InputError("--ray needs Ray; install specrace[ray], or leave it out.") from error
    cluster = {"num_cpus": processes} if address == "local" else {"address": address}
    try:
        ray.init(**cluster, include_dashboard=False, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"There is no Ray cluster at {shorten(address)}; give local, or its address.") from error
    try:
        score = ray.remote(score_shard)
        pending = [score.remote(*job) for job in jobs]
        while pending:
            done, pending = ray.wait(pending)
            yield from ray.get(done)
    finally:
        ray.shutdown()


def _start_worker() -> None:
    """Ignore interrupts, which the parent handles, and exit when the parent is killed instead of waiting forever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
