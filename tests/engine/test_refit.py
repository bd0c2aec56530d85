"""Refitting a cost curve: it is raised where forwards cost more now, and otherwise returned unchanged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.cost_curve import ASSUMED_CPU, ContextCost, CostCurve
from specrace.engine import refit as refit_module
from specrace.engine.refit import MIN_PARAMETERS, MIN_ROUNDS, ROUNDS, measure, refit, scaled
from specrace.engine.setup import RaceSetup
from specrace.engine.spec import RaceSpec, plan_lane

# Row counts and their costs; the same after a prompt of 64 tokens, where one row takes 5 ms.
CURVE = CostCurve((1, 2, 4, 8, 16), (1.0, 1.1, 1.2, 1.3, 1.8), (ContextCost(64, 5.0, (1.0, 1.1, 1.2, 1.3, 1.8)),))
SPEC = RaceSpec(("vanilla", "trie"))
LARGE_TARGET: Any = SimpleNamespace(
    device_type="cpu", chains_only=False, describe=lambda: {"parameters": MIN_PARAMETERS}
)


def setup_of(target: Any, spec: RaceSpec, curve: CostCurve | None = None) -> RaceSetup:
    """A setup after a prompt of one token; nothing here reads the prefix."""
    prefix: Any = None
    return RaceSetup(target, (7,), prefix, spec, curve)


def set_ratios(monkeypatch: pytest.MonkeyPatch, *ratios: float) -> None:
    """Make `measure` return these ratios."""
    monkeypatch.setattr(refit_module, "measure", lambda _setup, rows: list(ratios[: len(rows)]))


def test_higher_costs_raise_the_curve_and_shrink_the_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ratios(monkeypatch, 1.2, 2.6)
    curve = refit(setup_of(LARGE_TARGET, SPEC, CURVE))
    # Eight rows cost twice as much as before, so 16 rows do, too.
    assert curve is not None and curve.ratio == pytest.approx((1.0, 1.1, 1.2, 2.6, 3.6))
    assert curve.contexts[0].ratio == curve.ratio and curve.contexts[0].row_ms == 5.0
    assert plan_lane(SPEC, "trie", "cpu", curve).num_draft < plan_lane(SPEC, "trie", "cpu", CURVE).num_draft


@pytest.mark.parametrize("measured", [(2.7, 3.0, 4.0), (1.05, 1.1, 1.8)], ids=["higher", "lower"])
def test_without_a_curve_the_assumed_one_is_fitted_to_the_measured_costs(
    monkeypatch: pytest.MonkeyPatch, measured: tuple[float, ...]
) -> None:
    set_ratios(monkeypatch, *measured)
    curve = refit(setup_of(LARGE_TARGET, RaceSpec(("vanilla", "fusion"))))
    assert curve is not None and [curve.at(rows) for rows in (4, 8, 16)] == pytest.approx(measured)
    assert curve.at(64) == pytest.approx(measured[2] / ASSUMED_CPU.at(16) * ASSUMED_CPU.at(64))


def test_ratios_below_1_are_raised_to_1(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ratios(monkeypatch, 0.9, 0.95, 1.2)
    curve = refit(setup_of(LARGE_TARGET, RaceSpec(("vanilla", "fusion"))))
    assert curve is not None and curve.at(4) == curve.at(8) == 1.0


@pytest.mark.parametrize("ratios", [(1.0, 1.1), (1.2, 1.3), (1.25, 1.4)], ids=["lower", "equal", "hardly higher"])
def test_the_curve_is_unchanged_unless_costs_rise_by_a_tenth(
    monkeypatch: pytest.MonkeyPatch, ratios: tuple[float, ...]
) -> None:
    set_ratios(monkeypatch, *ratios)
    assert refit(setup_of(LARGE_TARGET, SPEC, CURVE)) is CURVE


@pytest.mark.parametrize(
    ("spec", "device", "parameters"),
    [
        (RaceSpec(("vanilla", "trie"), num_draft=8), "cpu", MIN_PARAMETERS),
        (RaceSpec(("vanilla",)), "cpu", MIN_PARAMETERS),
        (SPEC, "cuda", MIN_PARAMETERS),
        (SPEC, "cpu", MIN_PARAMETERS - 1),
    ],
    ids=["a fixed draft size", "no drafts", "a GPU", "a small model"],
)
def test_nothing_is_measured_for_fixed_draft_sizes_gpus_and_small_models(
    monkeypatch: pytest.MonkeyPatch, spec: RaceSpec, device: str, parameters: int
) -> None:
    monkeypatch.setattr(refit_module, "measure", pytest.fail)
    target: Any = SimpleNamespace(device_type=device, chains_only=False, describe=lambda: {"parameters": parameters})
    assert refit(setup_of(target, spec, CURVE)) is CURVE


@pytest.mark.parametrize(("limit_s", "rounds"), [(3600.0, ROUNDS), (-1.0, MIN_ROUNDS)])
def test_measured_ratios_are_medians_over_rounds(monkeypatch: pytest.MonkeyPatch, limit_s: float, rounds: int) -> None:
    scored_sizes: list[int] = []
    kept_paths: list[tuple[int, ...]] = []
    session = SimpleNamespace(score=lambda tree: scored_sizes.append(len(tree)), keep=kept_paths.append)
    target: Any = SimpleNamespace(session=lambda *_, **__: session)

    # In ms, for 1, 4 and 8 rows. The third round, 4 rows in the fourth, and 8 rows in the last one were disturbed.
    times = iter([2.0, 3.0, 5.0, 2.0, 3.0, 5.0, 20.0, 30.0, 50.0, 4.0, 60.0, 10.0, 2.0, 3.0, 0.5])

    def timed(run: Any) -> tuple[float, float]:
        run()
        return 0.0, next(times)

    monkeypatch.setattr(refit_module, "timed", timed)
    monkeypatch.setattr(refit_module, "LIMIT_S", limit_s)
    assert measure(setup_of(target, SPEC), (4, 8)) == [1.5, 2.5]
    assert scored_sizes == [1, 4, 8] * rounds and kept_paths == [(0,)]


def test_a_scaled_curve_interpolates_the_scales_linearly() -> None:
    curve = CostCurve((1, 3, 8, 40), (1.0, 1.5, 2.0, 4.0))
    # The scale is 1 at one row and 1.3 at four, so 1.2 at three; beyond eight rows it stays 1.5.
    assert scaled(curve, (4, 8), (1.3, 1.5)).ratio == pytest.approx((1.0, 1.5 * 1.2, 3.0, 6.0))
