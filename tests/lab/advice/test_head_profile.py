"""A head's forecast from its acceptance by depth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.lab.advice.head_profile import HeadProfile

# A forward over 1 + d rows costs 1 + 0.1 d.
CURVE = CostCurve((1, 11), (1.0, 2.0))


def write(folder: Path, value: Any) -> Path:
    """Write a head's profile with this content; return its path."""
    path = folder / "head.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_the_draft_size_that_pays_best_is_forecast_by_hand(tmp_path: Path) -> None:
    """A draft token costs 0.1 for its row and 0.1 for the head's pass: 1.5 / 1.2, then 1.9 / 1.4, then 1.94 / 1.6."""
    forecast = HeadProfile.load(write(tmp_path, {"by_depth": [0.5, 0.8, 0.1], "pass_cost": 0.1})).forecast(CURVE)
    assert forecast.as_json() == pytest.approx(
        {"num_draft": 2, "tau": 1.9, "speedup": 1.9 / 1.4, "break_even": 0.2}, rel=1e-9
    )
    assert (
        "1.90 tokens a step with drafts of 2, a forecast speedup of 1.36x; one draft token pays if more than 20 %"
        in (forecast.sentence())
    )


def test_a_head_at_its_break_even_neither_gains_nor_loses() -> None:
    break_even = HeadProfile((0.9,), 0.3).forecast(CURVE).break_even
    assert (1 + break_even) / (CURVE.at(2) + 0.3) == pytest.approx(1.0)
    assert HeadProfile((break_even + 0.01,), 0.3).forecast(CURVE).num_draft == 1
    assert HeadProfile((break_even - 0.01,), 0.3).forecast(CURVE).num_draft == 0


def test_a_slow_head_does_not_pay_and_the_sentence_says_so() -> None:
    sentence = HeadProfile((1.0, 1.0), 2.0).forecast(CURVE).sentence()
    assert "does not pay at any draft size; a draft of one token cannot pay" in sentence
    assert "no replay of these requests" in sentence


def test_in_a_batch_a_row_counts_for_each_request() -> None:
    """With ten requests, one more row for each adds 1.0 to a forward of 1.9; with one request, it adds 0.1 to 1.0."""
    profile = HeadProfile((0.8,), 0.0)
    assert profile.forecast(CURVE).speedup == pytest.approx(1.8 / 1.1)
    assert profile.forecast(CURVE, batch=10).speedup == pytest.approx(1.8 / (2.9 / 1.9))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([0.5], "not a head's profile"),
        ({"by_depth": [], "pass_cost": 0.1}, "by_depth is not a list of 1 to 64 shares"),
        ({"by_depth": [41], "pass_cost": 0.1}, "shares from 0 to 1"),
        ({"by_depth": [True], "pass_cost": 0.1}, "by_depth is not a list"),
        ({"by_depth": ["0.5"], "pass_cost": 0.1}, "by_depth is not a list"),
        ({"by_depth": [float("nan")], "pass_cost": 0.1}, "by_depth is not a list"),
        ({"by_depth": [0.5] * 65, "pass_cost": 0.1}, "by_depth is not a list"),
        ({"by_depth": 0.5, "pass_cost": 0.1}, "by_depth is not a list"),
        ({"by_depth": [0.5]}, "pass_cost, the time of a pass of the head in forwards of its target, is not a number"),
        ({"by_depth": [0.5], "pass_cost": -0.1}, "pass_cost"),
        ({"by_depth": [0.5], "pass_cost": float("inf")}, "pass_cost"),
        ({"by_depth": [0.5], "pass_cost": float("nan")}, "pass_cost"),
        ({"by_depth": [0.5], "pass_cost": None}, "pass_cost"),
    ],
)
def test_a_bad_profile_ends_in_a_sentence(tmp_path: Path, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        HeadProfile.load(write(tmp_path, value))
    assert "\n" not in str(caught.value) and '"pass_cost": 0.1}' in str(caught.value)


def test_a_file_that_is_no_json_or_missing_ends_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "head.json").write_text("by_depth: 0.5", encoding="utf-8")
    for name in ("head.json", "none.json"):
        with pytest.raises(InputError, match=name):
            HeadProfile.load(tmp_path / name)
