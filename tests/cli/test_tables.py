"""The bench's table in a narrow terminal and in a pipe."""

from __future__ import annotations

import io
from typing import Any

import pytest

from specrace.cli.shared import tables
from specrace.cli.shared.terminal import CleanConsole
from specrace.lab.bench.benchmark import COUNTERPARTS

NOTE = "A sentence about the machine's pace that is long enough for two lines of a terminal with eighty columns."
# `build_ms` is the sum over the 30 prompts.
BUILD_TIMES = {"build_ms": 60.0, "shared_ms": 41.25}
DIFFERS = {"identical": False, "identical_prompts": 28, "first_difference": {"gap": 0.0041}}


def lane_figures(name: str, **changes: Any) -> dict[str, Any]:
    """Made-up figures of a lane, as `bench` computes them, with these changes."""
    figures = {
        "lane": name, "tokens_per_s": 1234.5, "speedup": 2.41, "speedup_low": 2.2, "speedup_high": 2.63, "tau": 3.21,
        "drafted_per_step": 15.2, "acceptance_rate": 0.31, "spread": 0.07, "run_tokens_per_s": 987.6,
        "roofline": {"of_limit": 0.84}, "identical": True, "split_ms": {"draft": 0.1, "target": 3.2, "keep": 0.2},
        "host_share": 0.08, "interleaved_over_solo": 1.01, "fastest_on": 12, "near_fastest_on": 14,
        "build_ms": 0.0, "shared_ms": 0.0,
    }  # fmt: skip
    return figures | changes


def bench_figures() -> dict[str, Any]:
    """The figures of a bench with every peer, three lanes and 30 prompts."""
    peers = [{"peer": name, **lane_figures(name), **DIFFERS} for name in COUNTERPARTS]
    fusion = lane_figures("fusion", **DIFFERS, **BUILD_TIMES)
    return {
        "model": "smollm2-135m + grounded adapter", "dtype": "float32", "device": "cpu", "threads": 2,
        "engine": "fused TorchScript, packed weights", "prompts": [{}] * 30, "counted_prompts": 30, "peers": peers,
        "lanes": [lane_figures("vanilla"), lane_figures("prompt-lookup"), fusion], "comparisons": [], "loops": [],
        "cut_at_limit": [], "settings": {"earlier_outputs": "kept"}, "warnings": [],
        "pace": {"disturbed_prompts": 0, "note": NOTE},
    }  # fmt: skip


def printed(monkeypatch: pytest.MonkeyPatch, **terminal: Any) -> list[str]:
    """The lines of the bench's table on a console with these properties."""
    out = io.StringIO()
    monkeypatch.setattr(tables, "console", lambda: CleanConsole(file=out, color_system=None, **terminal))
    tables.show(bench_figures())
    return out.getvalue().splitlines()


def test_a_narrow_terminal_shows_every_figure_in_two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, width=80, force_terminal=True)
    assert max(map(len, lines)) <= 80 and "…" not in "".join(lines)
    words = " ".join(" ".join(lines).split())
    for name in (*tables.HEADER, *COUNTERPARTS, "fusion", "2.41x (2.20-2.63)", "988", "84%", "gap 0.004"):
        assert name in words
    assert sum(line.startswith("prompt-lookup ") for line in lines) == 2


def test_a_pipe_gets_one_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, width=80, force_terminal=False)
    (header,) = [line for line in lines if line.startswith("decoder")]
    assert all(name in header for name in tables.HEADER) and NOTE in lines
    assert "Tables for a prompt, on the clock: fusion 2.00 ms." in lines
    assert "Built once for all requests, on no clock: fusion 41.2 ms." in lines
    (row,) = [line for line in lines if line.startswith("fusion ")]
    assert "2.41x (2.20-2.63)" in row and "identical on 28 of 30; first gap 0.004, float32" in row
