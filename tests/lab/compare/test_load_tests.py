"""Results of load generators are read as measurements; other layouts are refused.

`results` holds what vLLM 0.32.0's `bench serve` and guidellm 0.8.1 wrote for a server that sends 12 tokens, 8 ms apart,
and what aiperf 0.13.0's own classes write; guidellm's report is cut down to the fields that are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.compare.load_tests import as_rows, read_load_tests

RESULTS = Path(__file__).parent / "results"
FILES = ("vllm-bench-serve", "guidellm", "aiperf")


def test_vllm_bench_serve_is_read() -> None:
    (test,) = read_load_tests(f"plain={RESULTS / 'vllm-bench-serve.json'}")
    assert (test.name, test.tool, test.model, test.concurrency) == ("plain", "vllm bench serve", "tiny", 2)
    assert (test.requests, test.failed, test.accept_length) == (4, 0, None)
    assert test.total_tokens_per_s == pytest.approx(146.33, abs=0.01)
    assert test.tokens_per_s == pytest.approx(1000 / 9.405, abs=0.01)
    assert (test.first_ms, test.first_ms_p99) == pytest.approx((52.51, 59.38), abs=0.01)
    assert (test.between_ms, test.between_ms_p99) == pytest.approx((8.28, 14.19), abs=0.01)


def test_what_vllm_counted_of_its_drafts_is_read_and_so_are_lines(tmp_path: Path) -> None:
    value = json.loads((RESULTS / "vllm-bench-serve.json").read_text())
    drafts = {"spec_decode_acceptance_length": 2.5, "spec_decode_per_position_acceptance_rates": [0.9, 0.6]}
    file = tmp_path / "runs.json"
    file.write_text("".join(json.dumps(run) + "\n" for run in (value, value | drafts)))
    plain, spec = read_load_tests(str(file))
    assert plain.name == spec.name == "runs"
    assert (plain.accept_length, plain.rates) == (None, ()) and (spec.accept_length, spec.rates) == (2.5, (0.9, 0.6))


def test_guidellm_has_a_measurement_for_each_strategy() -> None:
    tests = read_load_tests(str(RESULTS / "guidellm.json"))
    assert [(test.tool, test.concurrency, test.requests, test.failed) for test in tests] == [
        ("guidellm", 1, 4, 0), ("guidellm", 2, 4, 0),
    ]  # fmt: skip
    assert tests[0].total_tokens_per_s == pytest.approx(67.59, abs=0.01)
    assert tests[0].tokens_per_s == pytest.approx(1000 / 10.170, abs=0.01)
    assert tests[0].first_ms == pytest.approx(51.21, abs=0.01)


def test_aiperf_is_read_with_its_failures() -> None:
    (test,) = read_load_tests(str(RESULTS / "aiperf.json"))
    assert (test.tool, test.model, test.concurrency, test.requests, test.failed) == ("aiperf", "tiny", 2, 4, 1)
    assert (test.total_tokens_per_s, test.tokens_per_s, test.accept_length) == (146.3, 106.7, 2.25)
    assert (test.first_ms, test.first_ms_p99, test.between_ms, test.between_ms_p99) == (52.5, 59.4, 8.3, 14.2)


def test_total_rates_are_compared_with_the_first_at_the_same_concurrency() -> None:
    tests = [test for name in FILES for test in read_load_tests(str(RESULTS / f"{name}.json"))]
    # Measured at 2 requests at a time (vLLM), 1 and 2 (guidellm), and 2 (aiperf).
    rows = as_rows(tests)
    first = rows[0]["total_tokens_per_s"]
    assert [row["of_all_ratio"] for row in rows] == [
        None, None, rows[2]["total_tokens_per_s"] / first, rows[3]["total_tokens_per_s"] / first,
    ]  # fmt: skip


def _set(*path: Any) -> Callable[[Any], None]:
    """A function that sets a value in JSON; `path`: the keys that lead to it, and last the new value."""
    *keys, last, value = path

    def change(content: Any) -> None:
        for key in keys:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("guidellm", _set("metadata", "version", 1), "guidellm's report has version 1, and version 2 is read"),
        ("guidellm", _set("benchmarks", []), "holds no finished benchmark"),
        ("guidellm", _set("benchmarks", 0, "metrics", {}), "is not a result that can be read"),
        ("guidellm", _set("benchmarks", 0, "metrics", "request_totals", "successful", 0), "no request was answered"),
        ("aiperf", _set("schema_version", "2.0"), "aiperf's export has schema 2.0, and schema 1 is read"),
        ("aiperf", _set("was_cancelled", True), "aiperf did not finish this run"),
        ("aiperf", _set("time_to_first_token", "unit", "ns"), "time_to_first_token is in ns, not in ms"),
        ("aiperf", _set("request_count", None), "it has no output_token_throughput or request_count"),
        ("vllm-bench-serve", _set("completed", 4.5), "a count is not a whole number"),
        ("vllm-bench-serve", _set("output_throughput", float("inf")), "a figure is negative or infinite"),
        ("vllm-bench-serve", _set("median_ttft_ms", -1.0), "a figure is negative or infinite"),
        ("vllm-bench-serve", _set("completed", 0), "no request was answered"),
    ],
)
def test_another_layout_is_refused_with_a_reason(
    tmp_path: Path, name: str, change: Callable[[Any], None], reason: str
) -> None:
    content = json.loads((RESULTS / f"{name}.json").read_text())
    change(content)
    file = tmp_path / "result.json"
    file.write_text(json.dumps(content))
    with pytest.raises(InputError) as error:
        read_load_tests(str(file))
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "{}", "not JSON", '{"a": 1}', "[" * 10_000, '{"metadata": 1, "benchmarks": 2, "config": 3}']
)
def test_a_file_that_is_not_a_result_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"result.json (is not a result|holds no finished)"):
        read_load_tests(str(file))
