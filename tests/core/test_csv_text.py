"""CSV whose texts no spreadsheet reads as formulas."""

from __future__ import annotations

import csv
import io

import pytest

from specrace.core.csv_text import csv_text


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ('=HYPERLINK("http://evil")', '\'=HYPERLINK("http://evil")'),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("a=1, b", "a=1, b"),
        (-0.5, "-0.5"),
        (None, ""),
    ],
)
def test_text_never_becomes_a_formula(value: object, cell: str) -> None:
    assert next(csv.reader(io.StringIO(csv_text([["x", value]]), newline=""))) == ["x", cell]
