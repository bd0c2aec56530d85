"""Sweeps: the counts are those of `score`, and neither a kill nor a restart changes them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.cost_curve import ASSUMED_CPU
from specrace.core.errors import InputError
from specrace.lab.scoring.cells import run_sweep
from specrace.lab.scoring.score import Scoreboard, score_output
from specrace.lab.scoring.sweep import (
    CELLS,
    DESCRIPTION,
    SHARD_SIZE,
    Cell,
    RequestScore,
    Sweep,
    SweepFolder,
    grid_lanes,
)
from tests.lab.parts import mostly_copying

LANES = ("prompt-lookup", "suffix")
GRID = {"prompt-lookup": {"longest": ("2", "3")}}
TRANSCRIPTS = mostly_copying(2 * SHARD_SIZE + 5)


def counts(sweep: Sweep) -> list[tuple[object, ...]]:
    """The counts of each lane and request, without times."""
    return [(lane, request, score.steps) for lane in range(len(sweep.lanes)) for request, score in sweep.scores(lane)]


@pytest.fixture(scope="module")
def whole_sweep() -> Sweep:
    """A finished sweep, which no test may change."""
    sweep = Sweep.of(grid_lanes(LANES, GRID, (4, 8)), TRANSCRIPTS, ASSUMED_CPU)
    run_sweep(sweep, TRANSCRIPTS)
    return sweep


def test_the_grid_has_every_combination_once_and_vanilla() -> None:
    swept = [(lane.name, lane.options.get("longest"), lane.num_draft) for lane in grid_lanes(LANES, GRID, (4, 8, 4))]
    lookup = [("prompt-lookup", longest, size) for longest in (2, 3) for size in (4, 8)]
    assert swept == [("vanilla", None, 0), *lookup, ("suffix", None, 4), ("suffix", None, 8)]


def test_a_lanes_own_options_replace_the_grids() -> None:
    lanes = grid_lanes(("trie:n=3", "trie", "trie:n=3:prefix=1"), {"trie": {"n": ("3", "5")}}, ())
    options = [(lane.options["n"], lane.options["prefix"]) for lane in lanes[1:]]
    assert [lane.name for lane in lanes] == ["vanilla", "trie", "trie", "trie"]
    assert options == [(3, 3), (5, 3), (3, 1)], "a combination that is named twice must be swept once"


def test_draft_sizes_do_not_change_lanes_that_cut_their_own_drafts() -> None:
    # Fusion's default size is 32.
    assert [(lane.name, lane.num_draft) for lane in grid_lanes(["fusion"], {}, (4, 8))] == [
        ("vanilla", 0),
        ("fusion", 32),
    ]


@pytest.mark.parametrize(
    ("names", "grid", "words"),
    [
        (["suffix"], {"trie": {"n": ["3"]}}, "trie, which is not swept"),
        (["trie"], {"trie": {"depth": ["3"]}}, "no option 'depth'"),
        (["trie"], {"trie": {"n": ["1"]}}, "from 2 to 64"),
        (["trie"], {"trie": {"n": range(2, 60), "prefix": range(1, 32), "static": (0, 1)}}, "more than 2000"),
    ],
)
def test_a_grid_that_cannot_be_swept_is_refused(names: list[str], grid: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        grid_lanes(names, grid, ())


@pytest.mark.slow
@pytest.mark.parametrize("keep_outputs", [False, True])
def test_the_counts_equal_those_of_a_scoreboard(keep_outputs: bool) -> None:
    lanes = grid_lanes(("prompt-lookup", "suffix", "fusion"), {}, (8,))
    # The last output repeats one of an earlier shard.
    transcripts = [*TRANSCRIPTS, replace(TRANSCRIPTS[-1], output=TRANSCRIPTS[3].output)]
    sweep = Sweep.of(lanes, transcripts, ASSUMED_CPU, keep_outputs)
    run_sweep(sweep, transcripts)
    board = Scoreboard(lanes, curve=ASSUMED_CPU, keep_outputs=keep_outputs)
    for request in transcripts:
        board.add(request)
    names = ("outputs", "looping", "tokens", "steps", "tau", "drafted_per_step", "acceptance_rate")
    rows = [sweep.tally(lane, range(len(transcripts))).row() for lane in range(len(lanes))]
    assert [[row[name] for name in names] for row in rows] == [
        [row[name] for name in names] for row in board.groups() if row["category"] == "all"
    ]
    # Lane 2, suffix, takes other steps for the last output if it may copy the earlier one.
    by_itself = RequestScore.from_tally(score_output(lanes[2], transcripts[-1]))
    assert (by_itself.steps != dict(sweep.scores(2))[len(transcripts) - 1].steps) is keep_outputs


@pytest.mark.slow
def test_several_processes_give_the_same_counts(whole_sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specrace.lab.scoring.cells.MIN_PARALLEL_WORK", 0)
    sweep = Sweep.of(whole_sweep.lanes, TRANSCRIPTS, ASSUMED_CPU)
    run_sweep(sweep, TRANSCRIPTS, processes=2)
    assert counts(sweep) == counts(whole_sweep)


@pytest.mark.slow
def test_a_finished_cell_survives_a_kill_and_is_counted_once(whole_sweep: Sweep, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    first = Sweep.of(whole_sweep.lanes, TRANSCRIPTS, ASSUMED_CPU)
    folder.open(first, resume=False)
    # A cell is one lane on one shard of the requests. It is written twice, and the kill cuts off a line.
    folder.append((1, 0), whole_sweep.cells[1, 0])
    folder.append((1, 0), whole_sweep.cells[1, 1])
    with (tmp_path / CELLS).open("ab") as stream:
        stream.write(b'{"lane":2,"sh')
    # Seven lanes on three shards.
    with pytest.raises(InputError, match="1 of 21 cells"):
        SweepFolder.load(tmp_path)
    resumed, done = Sweep.of(whole_sweep.lanes, TRANSCRIPTS, ASSUMED_CPU), list[Cell]()
    folder.open(resumed, resume=True)
    assert resumed.cells == {(1, 0): whole_sweep.cells[1, 0]}
    run_sweep(resumed, TRANSCRIPTS, folder=folder, on_progress=done.append)
    assert sorted([*done, (1, 0)]) == sorted(resumed.all_cells)
    assert counts(SweepFolder.load(tmp_path)) == counts(resumed) == counts(whole_sweep)


def test_a_sweep_of_a_version_without_options_is_finished(whole_sweep: Sweep, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.open(whole_sweep, resume=False)
    description = json.loads((tmp_path / DESCRIPTION).read_text())
    for request in description["requests"]:
        del request["options"]
    (tmp_path / DESCRIPTION).write_text(json.dumps(description))
    with_options = replace(
        whole_sweep, requests=tuple(replace(request, options=("n",)) for request in whole_sweep.requests)
    )
    SweepFolder(tmp_path).open(with_options, resume=True)
    assert with_options.requests[0].options == ("n",)
    with pytest.raises(InputError, match="other logs"):
        SweepFolder(tmp_path).open(replace(with_options, requests=with_options.requests[1:]), resume=True)


def test_another_sweep_in_the_same_folder_is_refused(whole_sweep: Sweep, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.open(Sweep.of(whole_sweep.lanes, TRANSCRIPTS), resume=True)
    with pytest.raises(InputError, match="add --resume"):
        folder.open(Sweep.of(whole_sweep.lanes, TRANSCRIPTS), resume=False)
    for changed in (
        Sweep.of(whole_sweep.lanes[:-1], TRANSCRIPTS),
        Sweep.of(whole_sweep.lanes, TRANSCRIPTS[:-1]),
        Sweep.of(whole_sweep.lanes, [*TRANSCRIPTS[:-1], mostly_copying(1, seed=9)[0]]),
        Sweep.of(whole_sweep.lanes, TRANSCRIPTS, ASSUMED_CPU),
        Sweep.of(whole_sweep.lanes, TRANSCRIPTS, keep_outputs=True),
    ):
        with pytest.raises(InputError, match="another --out"):
            folder.open(changed, resume=True)


@pytest.mark.parametrize("name", [DESCRIPTION, CELLS])
@pytest.mark.parametrize("content", ["nonsense\n", "[]\n", '{"lane": "x"}\n'])
def test_a_damaged_folder_is_reported(whole_sweep: Sweep, tmp_path: Path, name: str, content: str) -> None:
    SweepFolder(tmp_path).open(Sweep.of(whole_sweep.lanes, TRANSCRIPTS), resume=False)
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=name):
        SweepFolder.load(tmp_path)


class OneMachineCluster:
    """The part of Ray that a sweep calls; jobs run in this process when they are fetched."""

    def init(self, **arguments: Any) -> None:
        if arguments.get("address") == "nowhere":
            raise ConnectionError
        self.arguments = arguments

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(remote=lambda *job: partial(function, *job))

    def wait(self, waiting: list[Any]) -> tuple[list[Any], list[Any]]:
        return waiting[-1:], waiting[:-1]

    def get(self, done: list[Any]) -> list[Any]:
        return [job() for job in done]

    def shutdown(self) -> None:
        self.arguments = {}


def test_a_ray_cluster_gives_the_same_counts(whole_sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", OneMachineCluster())
    sweep = Sweep.of(whole_sweep.lanes, TRANSCRIPTS, ASSUMED_CPU)
    run_sweep(sweep, TRANSCRIPTS, ray="local", processes=2)
    assert counts(sweep) == counts(whole_sweep)


@pytest.mark.parametrize(
    ("ray", "words"), [(None, r"install specrace\[ray\]"), (OneMachineCluster(), "no Ray cluster at")]
)
def test_a_missing_ray_cluster_is_reported(whole_sweep: Sweep, ray: Any, words: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(InputError, match=words):
        run_sweep(Sweep.of(whole_sweep.lanes, TRANSCRIPTS), TRANSCRIPTS, ray="nowhere")
