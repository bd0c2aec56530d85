"""A curve is made dearer where wide forwards are dearer, and otherwise left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.cost_curve import ASSUMED_CPU, ContextCost, CostCurve
from specrace.engine import refit as module
from specrace.engine.refit import MIN_PARAMETERS, MIN_ROUNDS, ROUNDS, measure, refit, scaled
from specrace.engine.spec import RaceSpec, plan_lane

CURVE = CostCurve((1, 2, 4, 8, 16), (1.0, 1.1, 1.2, 1.3, 1.8), (ContextCost(64, 5.0, (1.0, 1.1, 1.2, 1.3, 1.8)),))
SPEC = RaceSpec(("vanilla", "trie"))
LARGE: Any = SimpleNamespace(device_type="cpu", describe=lambda: {"parameters": MIN_PARAMETERS})


def set_ratios(monkeypatch: pytest.MonkeyPatch, *ratios: float) -> None:
    monkeypatch.setattr(module, "measure", lambda _target, _prefix, _prompt, rows: list(ratios[: len(rows)]))


def test_dearer_forwards_make_a_dearer_curve_and_smaller_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ratios(monkeypatch, 1.2, 2.6)
    curve = refit(LARGE, Any, (1,), SPEC, CURVE)
    assert curve is not None and curve.ratio == pytest.approx((1.0, 1.1, 1.2, 2.6, 3.6))
    assert curve.contexts[0].ratio == curve.ratio and curve.contexts[0].row_ms == 5.0
    assert plan_lane(SPEC, "trie", "cpu", curve).num_draft < plan_lane(SPEC, "trie", "cpu", CURVE).num_draft


@pytest.mark.parametrize("measured", [(2.7, 3.0, 4.0), (1.05, 1.1, 1.8)], ids=["dearer", "cheaper"])
def test_an_assumed_curve_is_made_as_dear_as_forwards_are(
    monkeypatch: pytest.MonkeyPatch, measured: tuple[float, ...]
) -> None:
    set_ratios(monkeypatch, *measured)
    curve = refit(LARGE, Any, (1,), RaceSpec(("vanilla", "fusion")), None)
    assert curve is not None and [curve.at(rows) for rows in (4, 8, 16)] == pytest.approx(measured)
    assert curve.at(64) == pytest.approx(measured[2] / ASSUMED_CPU.at(16) * ASSUMED_CPU.at(64))


def test_no_forward_over_several_rows_counts_as_cheaper_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_ratios(monkeypatch, 0.9, 0.95, 1.2)
    curve = refit(LARGE, Any, (1,), RaceSpec(("vanilla", "fusion")), None)
    assert curve is not None and curve.at(4) == curve.at(8) == 1.0


@pytest.mark.parametrize("ratios", [(1.0, 1.1), (1.2, 1.3), (1.25, 1.4)], ids=["cheaper", "equal", "noise"])
def test_a_curve_that_holds_is_left(monkeypatch: pytest.MonkeyPatch, ratios: tuple[float, ...]) -> None:
    set_ratios(monkeypatch, *ratios)
    assert refit(LARGE, Any, (1,), SPEC, CURVE) is CURVE


@pytest.mark.parametrize(
    ("spec", "device", "parameters"),
    [
        (RaceSpec(("vanilla", "trie"), num_draft=8), "cpu", MIN_PARAMETERS),
        (RaceSpec(("vanilla",)), "cpu", MIN_PARAMETERS),
        (SPEC, "cuda", MIN_PARAMETERS),
        (SPEC, "cpu", MIN_PARAMETERS - 1),
    ],
    ids=["a size that was given", "no drafts", "a GPU", "a small model"],
)
def test_where_nothing_is_to_be_learned_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, spec: RaceSpec, device: str, parameters: int
) -> None:
    monkeypatch.setattr(module, "measure", pytest.fail)
    target: Any = SimpleNamespace(device_type=device, describe=lambda: {"parameters": parameters})
    assert refit(target, Any, (1,), spec, CURVE) is CURVE


@pytest.mark.parametrize(("late", "rounds"), [(False, ROUNDS), (True, MIN_ROUNDS)])
def test_medians_of_forwards_beside_each_other(monkeypatch: pytest.MonkeyPatch, late: bool, rounds: int) -> None:
    scored: list[int] = []
    kept_paths: list[tuple[int, ...]] = []
    session = SimpleNamespace(score=lambda tree: scored.append(len(tree)), keep=kept_paths.append)
    target: Any = SimpleNamespace(session=lambda *_, **__: session)

    # They hold a disturbed forward, a slow round and a forward that is too short.
    times = iter([2.0, 3.0, 5.0, 2.0, 3.0, 5.0, 20.0, 30.0, 50.0, 4.0, 60.0, 10.0, 2.0, 3.0, 0.5])

    def timed(run: Any) -> tuple[float, float]:
        run()
        return 0.0, next(times)

    monkeypatch.setattr(module, "timed", timed)
    monkeypatch.setattr(module, "LIMIT_S", -1.0 if late else 3600.0)
    assert measure(target, None, (7,), (4, 8)) == [1.5, 2.5]  # type: ignore[arg-type]
    assert scored == [1, 4, 8] * rounds and kept_paths == [(0,)]


def test_between_what_was_measured_lies_a_line() -> None:
    curve = CostCurve((1, 3, 8, 40), (1.0, 1.5, 2.0, 4.0))
    assert scaled(curve, (4, 8), (1.3, 1.5)).ratio == pytest.approx((1.0, 1.5 * 1.2, 3.0, 6.0))
