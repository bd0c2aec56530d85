"""Cost curves from a user's file: a bad one is refused with a sentence that names the file, and uses little memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from specrace.core.cost_curve import MAX_ROWS, ContextCost, CostCurve
from specrace.core.errors import InputError

# The digits of a number that overflows a float.
HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"rows": [1, 1000000000], "ratio": [1, 2]}', "at most 4096 rows, not 1000000000"),
        (f'{{"rows": [1, {HUGE}], "ratio": [1, 2]}}', "at most 4096 rows, not 1000000000…0000000000"),
        (f'{{"rows": [1, 2], "ratio": [1, {HUGE}]}}', "not a cost curve"),
        (f'{{"rows": [1, 2], "ratio": [1, {HUGE * 20}]}}', "not a cost curve"),
        ('{"rows": [1, Infinity], "ratio": [1, 2]}', "not a cost curve"),
        ('{"rows": [1, 2], "ratio": [1, NaN]}', "above 0"),
        ('{"rows": [1], "ratio": [1], "contexts": [{"context": 1, "row_ms": NaN, "ratio": [1]}]}', "above 0"),
        (
            f'{{"rows": [1], "ratio": [1], "contexts": [{{"context": 1, "row_ms": {HUGE}, "ratio": [1]}}]}}',
            "not a cost curve",
        ),
        ("[" * 100_000, "not a cost curve"),
        (" " * 5_000_000, "larger than 4 MB"),
        ("\0", "not a cost curve"),
    ],
)
def test_a_bad_curve_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "curve.json"
    path.write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        CostCurve.load(path)
    # The sentence names the file and shortens the value.
    assert str(path) in str(caught.value) and len(str(caught.value)) < 400


def test_an_endless_file_is_no_curve() -> None:
    with pytest.raises(InputError, match="a device or a pipe"):
        CostCurve.load(Path("/dev/zero"))


def test_a_curve_with_the_maximum_row_count_is_accepted(tmp_path: Path) -> None:
    curve = CostCurve((1, MAX_ROWS), (1.0, 2.0))
    curve.save(tmp_path / "curve.json")
    assert CostCurve.load(tmp_path / "curve.json") == curve


def test_in_a_batch_a_row_of_one_request_is_a_row_of_each() -> None:
    curve = CostCurve((1, 4, 8, 32), (1.0, 1.2, 2.0, 5.0), (ContextCost(9, 6.0, (1.0, 1.4, 2.2, 6.0)),))
    for batch in (2, 3, 8, 100):
        batched = curve.in_batch(batch, max_rows=12)
        for rows in (1, 12):
            assert batched.at(rows) == pytest.approx(curve.at(batch * rows) / curve.at(batch))
        # In between, the batch's curve only has points near those of the original, rounded to whole rows.
        assert all(abs(batched.at(rows) * curve.at(batch) - curve.at(batch * rows)) < 0.2 for rows in range(1, 13))
        context_ratio = curve.contexts[0].ratio
        assert batched.row_ms == pytest.approx(6.0 * CostCurve(curve.rows, context_ratio).at(batch) / batch)
    assert curve.in_batch(1, max_rows=12) is curve and curve.in_batch(4, max_rows=1).at(1) == 1.0
