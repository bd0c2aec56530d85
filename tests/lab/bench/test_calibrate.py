"""Cost curves: interpolation, the draft size that pays, padding, measurement, and the cached file."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core import clock
from specrace.core.cost_curve import ASSUMED_CPU, ContextCost, CostCurve, best_budget, pad_rows
from specrace.core.errors import InputError
from specrace.core.events import Finished, Started
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.drafters import METHODS
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.lab.bench import calibrate as calibrating
from specrace.lab.bench.calibrate import cache_file, calibrate, load_cached, measure
from tests.parts import (
    ScriptedDrafter,
    TableSession,
    TableTarget,
    continuation,
    function_lane,
    markov,
    record_sizes,
)

ROWS = calibrating.ROWS
# Curves on which a further row costs about a thousandth, and four tenths, of the first row.
FLAT = CostCurve(ROWS, tuple(1.0 + 0.001 * rows for rows in ROWS))
STEEP = CostCurve(ROWS, tuple(0.6 + 0.4 * rows for rows in ROWS))
# Two, three and five rows cost more than four, as in float32 on a CPU.
CLIFF = CostCurve((1, 2, 3, 4, 5, 8, 16, 64), (1.0, 2.1, 3.0, 1.4, 2.6, 2.7, 3.4, 7.0))


ABOUT = {
    "model": "small", "parameters": 64, "dtype": "float32", "device": "cpu", "threads": 1, "versions": {"torch": "2"}
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's cache folder, for this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "specrace"


def test_the_curve_is_interpolated_linearly() -> None:
    curve = CostCurve((1, 2, 4), (2.0, 3.0, 6.0))
    assert [curve.at(rows) for rows in (1, 2, 3, 4, 6)] == [1.0, 1.5, 2.25, 3.0, 4.5]


def test_a_falling_curve_is_extrapolated_as_constant() -> None:
    assert CostCurve((1, 8, 16), (1.0, 2.0, 1.8)).at(100) == 1.8


@pytest.mark.parametrize(
    ("rows", "ratio"),
    [
        ((), ()),
        ((2, 3), (1.0, 2.0)),
        ((1, 3, 2), (1.0,) * 3),
        ((1, 2), (1.0,)),
        ((1, 2), (1.0, 0.0)),
        ((1,), (math.nan,)),
    ],
)
def test_an_invalid_curve_is_refused(rows: tuple[int, ...], ratio: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="cost curve"):
        CostCurve(rows, ratio)


def test_near_uses_the_nearest_context() -> None:
    short, long = ContextCost(256, 3.0, (1.0, 2.0)), ContextCost(1024, 6.0, (1.0, 1.5))
    curve = CostCurve((1, 2), (1.0, 1.75), (short, long))
    assert [curve.near(context).at(2) for context in (1, 639, 641, 9999)] == [2.0, 2.0, 1.5, 1.5]
    assert CLIFF.near(77) is CLIFF


def test_a_curve_can_be_saved_and_loaded(tmp_path: Path) -> None:
    about = {"model": "größer", "dtype": "bfloat16", "versions": {"torch": "2"}}
    curve = CostCurve((1, 2), (1.0, 1 / 3), (ContextCost(256, 0.1, (1.0, 1 / 3)),), about)
    curve.save(tmp_path / "below" / "curve.json")
    assert CostCurve.load(tmp_path / "below" / "curve.json") == curve
    assert [file.name for file in (tmp_path / "below").iterdir()] == ["curve.json"]


@pytest.mark.parametrize(
    "text",
    ["", "null", "[1]", '{"rows": [1]}', '{"rows": 1, "ratio": [1]}', '{"rows": [1, 2], "ratio": [1, "x"]}',
     '{"rows": [1], "ratio": [1], "contexts": [{"context": 1, "row_ms": 1, "ratio": [1, 2]}]}', "[" * 9999,
     '{"rows": [1e999], "ratio": [1]}', '{"rows": [1], "ratio": [1], "contexts": 5}'],
)  # fmt: skip
def test_an_invalid_curve_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "curve.json").write_text(text)
    with pytest.raises(InputError, match="cost curve"):
        CostCurve.load(tmp_path / "curve.json")


@pytest.mark.parametrize("method", ["trie", "prompt-lookup", "trigram"])
def test_a_flat_curve_allows_large_drafts_and_a_steep_one_small_drafts(method: str) -> None:
    # The accepted tokens that the first, second, ... draft token is expected to add.
    gains = METHODS[method].profile.gains(63)
    flat, steep = best_budget(FLAT, gains), best_budget(STEEP, gains)
    assert flat >= 8 > 4 >= steep
    assert flat >= 20 or method == "trigram"


def test_the_draft_size_skips_a_cost_cliff() -> None:
    """With falling gains two rows are never chosen. If few nodes gain anything, four rows are chosen, not five."""
    # With the root these are 4 or 8 to 10 rows.
    assert best_budget(CLIFF, METHODS["trie"].profile.gains(63)) in (3, 7, 8, 9)
    assert best_budget(CLIFF, (0.5, 0.4, 0.3, 0.1, 0.05)) == 3
    assert best_budget(CLIFF, (0.5, 0.1, 0.0, 0.0)) == 3


def test_the_budget_maximises_tokens_per_cost() -> None:
    gains = (0.7, 0.1, 0.6, 0.2, 0.0, 0.3, 0.0)
    for curve in (FLAT, STEEP, CLIFF):
        value = {k: (1 + sum(gains[:k])) / curve.at(1 + k) for k in range(len(gains) + 1)}
        assert value[best_budget(curve, gains)] == pytest.approx(max(value.values()))
        assert best_budget(curve, gains, min_draft=2) >= 2


def test_nothing_is_drafted_where_nothing_pays_unless_a_minimum_is_set() -> None:
    assert best_budget(STEEP, (0.01, 0.01)) == 0
    assert best_budget(STEEP, (0.01, 0.01), min_draft=1) == 1
    assert best_budget(FLAT, ()) == 0
    assert best_budget(CostCurve((1,), (1.0,)), (0.0, 0.0)) == 0


def test_rows_are_padded_to_the_cheapest_number_above() -> None:
    assert [pad_rows(CLIFF, rows) for rows in (1, 2, 3, 4, 5, 64, 70)] == [1, 4, 4, 4, 5, 64, 70]
    assert all(pad_rows(FLAT, rows) == rows for rows in ROWS)


def test_a_lane_pads_its_tree_over_the_cliff_and_drops_the_padding() -> None:
    """Two and three rows become four if the lane may draft three; the step's tree and what is learned do not change.

    The target is a function of the last two tokens, and the drafts are chains of 0 to 4 equal tokens, cut to 3.
    """
    prompt = (2, 3, 4, 5, 2, 3, 9, 2)
    drafter = ScriptedDrafter(lambda context, _: TokenTree.chain(context[-1], context[-1:] * (len(context) % 5)))
    texts, sizes = [], []
    for curve in (None, CLIFF):
        lane = function_lane(prompt, drafter, markov(3), num_draft=3, max_new_tokens=20)
        lane.curve = curve
        scored_sizes: list[int] = []
        record_sizes(lane.session, scored_sizes)
        steps = []
        while not lane.end:
            steps.append(lane.step())
        assert all(len(step.verdict.scores.targets) == len(step.tree) <= 4 for step in steps)
        texts.append(lane.tokens)
        sizes.append((set(scored_sizes), {len(step.tree) for step in steps}))
    assert texts[0] == texts[1] == continuation(prompt, markov(3), 20)
    assert sizes == [({1, 2, 3, 4}, {1, 2, 3, 4}), ({1, 4}, {1, 2, 3, 4})]


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(0.8, seed=2)])
def test_padding_changes_neither_texts_nor_steps(params: SamplingParams) -> None:
    target = TableTarget(max_context=512)
    for name in ("trie", "recycling", "trigram", "suffix"):
        spec = RaceSpec((name,), max_new_tokens=24, num_draft=3, temperature=params.temperature, seed=params.seed)
        *_, unpadded_end = race(target, (2, 3, 4, 2, 3, 5, 2), spec)
        *_, padded_end = race(target, (2, 3, 4, 2, 3, 5, 2), spec, curve=CLIFF)
        assert isinstance(unpadded_end, Finished) and isinstance(padded_end, Finished)
        padded, unpadded = padded_end.lanes[1], unpadded_end.lanes[1]
        assert padded.identical and (padded.steps, padded.text) == (unpadded.steps, unpadded.text)


def test_a_race_drafts_what_its_curve_allows() -> None:
    target = TableTarget(max_context=512)
    lanes = ("trie", "prompt-lookup", "lookahead")
    spec = RaceSpec(lanes, max_new_tokens=4)

    def budgets(spec: RaceSpec, curve: CostCurve | None) -> tuple[dict[str, int], dict[str, Any]]:
        started = next(iter(race(target, range(2, 12), spec, curve=curve)))
        assert isinstance(started, Started)
        return {info.lane: info.num_draft for info in started.lanes}, started.about

    assumed_sizes, about = budgets(spec, None)
    assert about["cost_curve"] is None
    # Without a measured curve, all lanes use the assumed one.
    assert assumed_sizes == budgets(spec, ASSUMED_CPU)[0] and 1 <= assumed_sizes["trie"] < METHODS["trie"].budget(
        "cpu", {}
    )
    assert plan_lane(spec, "trie", "cuda").num_draft == METHODS["trie"].budget("cuda", {})
    steep_sizes, about = budgets(spec, STEEP)
    assert about["cost_curve"]["ratio"] == list(STEEP.ratio)
    assert 1 <= steep_sizes["trie"] <= 4 and 1 <= steep_sizes["prompt-lookup"] <= 4
    # Lookahead's own options decide the size of its window, and vanilla has no draft on any machine.
    assert steep_sizes["lookahead"] == assumed_sizes["lookahead"] and steep_sizes["vanilla"] == 0
    assert budgets(spec, FLAT)[0]["trie"] > assumed_sizes["trie"]
    assert set(budgets(RaceSpec(lanes, max_new_tokens=4, num_draft=5), STEEP)[0].values()) == {0, 5}


def test_measurements_fit_the_models_context() -> None:
    curve = measure(TableTarget(max_context=100), rounds=1)
    assert curve.rows == tuple(rows for rows in ROWS if rows <= 50)
    assert [cost.context for cost in curve.contexts] == [32, 100 - 48]
    assert all(ratio > 0 for ratio in curve.ratio) and curve.ratio[0] == 1.0
    long_context = measure(TableTarget(max_context=512), rows=(1, 4), rounds=3)
    assert [cost.context for cost in long_context.contexts] == [32, 256, 508]
    assert (
        long_context.about["model"] == "a function"
        and long_context.about["rounds"] == 3
        and "date" in long_context.about
    )


def test_the_measured_ratios_are_those_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the test's clock, k rows take 3 + k ms, and twice that after step 50, where the machine is slow; every 13th
    step takes 0.1 s longer, and step 30 seems to take no time.
    """
    now, steps, score = 0.0, 0, TableSession.score

    def timed(session: TableSession, tree: TokenTree) -> Scores:
        nonlocal now, steps
        steps += 1
        delay_s, takes_no_time = 0.1 * (steps % 13 == 0), steps == 30
        now += 1e-9 if takes_no_time else 0.001 * (3 + len(tree)) * (2 if steps > 50 else 1) + delay_s
        return score(session, tree)

    monkeypatch.setattr(TableSession, "score", timed)
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(clock, "waited_ms", lambda: 0.0)
    curve = measure(TableTarget(max_context=512), rows=(1, 9, 64), contexts=(256,), rounds=21)
    assert curve.ratio == pytest.approx((1.0, 12 / 4, 67 / 4)) and curve.contexts[0].row_ms == pytest.approx(8.0)


@pytest.mark.parametrize("rounds", [0, calibrating.MAX_ROUNDS + 1])
def test_rounds_out_of_bounds_are_refused(rounds: int) -> None:
    with pytest.raises(InputError, match="rounds"):
        measure(TableTarget(max_context=512), rounds=rounds)


def test_a_curve_is_measured_once_and_cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, chance = TableTarget(max_context=100), random.Random(0)
    # A forward of this target may take less than a tick of the thread's clock, and a curve has no ratio of 0.
    monkeypatch.setattr(calibrating, "since_ms", lambda _: chance.uniform(1.0, 2.0))
    assert load_cached(target.describe()) is None
    first = calibrate(target, rounds=1)
    (file,) = folder.iterdir()
    assert file == cache_file(target.describe()) and file.name.startswith("cost-")
    assert calibrate(target, rounds=1) == first == load_cached(target.describe())
    assert calibrate(target, rounds=1, refresh=True) != first
    file.write_text(file.read_text()[:-20])
    assert load_cached(target.describe()) is None
    recalibrated = calibrate(target, rounds=1)
    assert load_cached(target.describe()) == recalibrated
    monkeypatch.setattr(calibrating, "user_cache_folder", lambda: Path("/proc/nothing"))
    assert calibrate(target, rounds=1).rows == first.rows


@pytest.mark.parametrize("name", ["model", "parameters", "dtype", "device", "processor", "threads", "versions"])
def test_the_cache_file_depends_on_machine_and_model(name: str) -> None:
    about = ABOUT
    assert cache_file(about | {name: {"torch": "0"}}) != cache_file(about) == cache_file(dict(about))


def test_the_cache_file_depends_on_the_compiled_decoders_version() -> None:
    files = [cache_file(ABOUT | {"versions": {"torch": "2", "decoder": version}}) for version in ("0a", "0b")]
    assert len({*files, cache_file(ABOUT)}) == 3


def test_the_cache_file_depends_on_the_engine_but_not_on_its_reason() -> None:
    about = ABOUT
    files = [cache_file(about | {"engine": engine}) for engine in ("eager", "eager (not traced: X)", "TorchScript")]
    assert files[0] == files[1] != files[2]


def test_every_engine_has_its_own_cache_file() -> None:
    about = ABOUT
    engines = (
        "compiled decoder",
        "fused TorchScript, packed weights",
        "fused TorchScript",
        "eager",
        "eager (no graphs)",
    )
    files = [cache_file(about | {"engine": engine}) for engine in engines]
    assert len(set(files)) == 4 and files[3] == files[4]
