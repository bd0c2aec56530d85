"""Reads the result files of load generators as measurements: vLLM's `bench serve`, guidellm and aiperf.

The layouts are those of vLLM 0.32.0 (`vllm/benchmarks/serve.py`), of guidellm 0.8.1 (`benchmark/schemas`, version 2 of
its report) and of aiperf 0.13.0 (`common/models/export_models.py`, schema 1). Other layouts are refused: a field of the
same name may have another unit or count something else there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError, shorten
from specrace.core.files import read_text

# Larger files are refused, because a file is read into memory as a whole.
_MAX_BYTES = 2_000_000_000
_KNOWN = "the JSON of vllm bench serve --save-result, guidellm's benchmarks.json, aiperf's profile_export_aiperf.json"
# The maximum length of a measurement's name; longer ones are cut.
_NAME_LENGTH = 80

Row = Mapping[str, Any]


@dataclass(frozen=True)
class LoadTest:
    """One measurement of a load generator; None for what the generator does not report.

    `tokens_per_s`: of one request after its first token; of the median request, or of the mean one in aiperf and
    guidellm. `accept_length`: the engine's own tokens per step, which counts only steps with a draft. `rates[i]`: the
    share of these steps that accept draft token i + 1, as vLLM reports it.
    """

    name: str
    tool: str
    model: str
    concurrency: int | None
    requests: int
    failed: int
    total_tokens_per_s: float
    tokens_per_s: float | None
    first_ms: float | None
    first_ms_p99: float | None
    between_ms: float | None
    between_ms_p99: float | None
    accept_length: float | None = None
    rates: tuple[float, ...] = ()


def read_load_tests(text: str) -> list[LoadTest]:
    """The measurements in a file, given as "NAME=FILE" or "FILE", named after the file. Raises InputError."""
    name, equals, path_text = text.partition("=")
    path = Path(path_text if equals else text)
    name = name if equals else path.stem
    content = read_text(path, _MAX_BYTES, f"give {_KNOWN}")
    try:
        values = _parse(content)
        tests = [test for value in values for test in _read(name[:_NAME_LENGTH], value)]
        for test in tests:
            _check(test)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        reason = f" ({error})" if isinstance(error, _LayoutError) else ""
        raise InputError(f"{shorten(path)} is not a result that can be read{reason}; give {_KNOWN}.") from error
    if not tests:
        raise InputError(f"{shorten(path)} holds no finished benchmark; run the load generator again.")
    return tests


class _LayoutError(ValueError):
    """A file has a layout or figures that are not supported; the message says what is wrong."""


def _parse(content: str) -> list[Any]:
    """The JSON value in a file, or those in its lines: --append-result writes a line for each run."""
    try:
        return [json.loads(content)]
    except ValueError:
        return [json.loads(line) for line in content.splitlines() if line.strip()]


def _read(name: str, value: Row) -> Iterator[LoadTest]:
    """The measurements of one JSON object."""
    for marking_fields, read in _LAYOUTS:
        if marking_fields <= value.keys():
            yield from read(name, value)
            return
    raise _LayoutError("it has the fields of no known load generator")


def _vllm(name: str, value: Row) -> Iterator[LoadTest]:
    """`vllm bench serve --save-result`: rates in tokens per second, times in ms."""
    # 0 if no answer had a second token.
    between = value.get("mean_tpot_ms")
    yield LoadTest(
        name=name,
        tool="vllm bench serve",
        model=str(value["model_id"]),
        concurrency=_count(value["max_concurrency"]) if value.get("max_concurrency") is not None else None,
        requests=_count(value["completed"]),
        failed=_count(value["failed"]),
        total_tokens_per_s=float(value["output_throughput"]),
        tokens_per_s=1000.0 / float(value["median_tpot_ms"]) if value.get("median_tpot_ms") else None,
        first_ms=_number(value.get("median_ttft_ms")),
        first_ms_p99=_number(value.get("p99_ttft_ms")),
        between_ms=_number(value.get("median_itl_ms")) if between else None,
        between_ms_p99=_number(value.get("p99_itl_ms")) if between else None,
        accept_length=_number(value.get("spec_decode_acceptance_length")),
        rates=tuple(map(float, value.get("spec_decode_per_position_acceptance_rates") or ())),
    )


def _guidellm(name: str, value: Row) -> Iterator[LoadTest]:
    """A report of guidellm, with a benchmark for each strategy."""
    version = value["metadata"].get("version")
    if version != 2:
        raise _LayoutError(f"guidellm's report has version {shorten(version, 20)}, and version 2 is read")
    for benchmark in value["benchmarks"]:
        metrics, strategy = benchmark["metrics"], benchmark["config"]["strategy"]
        streams = strategy.get("streams", 1 if strategy["type_"] == "synchronous" else strategy.get("max_concurrency"))
        first, between = (metrics[key]["successful"] for key in ("time_to_first_token_ms", "inter_token_latency_ms"))
        has_times = between["count"] > 0 and between["mean"] > 0
        yield LoadTest(
            name=name,
            tool="guidellm",
            model=str(field_at(benchmark, "config", "backend", "model") or ""),
            concurrency=None if streams is None else _count(streams),
            requests=_count(metrics["request_totals"]["successful"]),
            failed=_count(metrics["request_totals"]["errored"]),
            total_tokens_per_s=float(metrics["output_tokens_per_second"]["total"]["mean"]),
            tokens_per_s=1000.0 / float(between["mean"]) if has_times else None,
            first_ms=_number(first["median"]) if first["count"] else None,
            first_ms_p99=_number(first["percentiles"]["p99"]) if first["count"] else None,
            between_ms=_number(between["median"]) if has_times else None,
            between_ms_p99=_number(between["percentiles"]["p99"]) if has_times else None,
        )


def _aiperf(name: str, value: Row) -> Iterator[LoadTest]:
    """An export of one run of aiperf; every metric has its unit."""
    version = str(value["schema_version"])
    if version.partition(".")[0] != "1":
        raise _LayoutError(f"aiperf's export has schema {shorten(version, 20)}, and schema 1 is read")
    if value.get("was_cancelled") or value.get("is_complete") is False:
        raise _LayoutError("aiperf did not finish this run")

    def stat(tag: str, key: str, unit: str) -> float | None:
        metric = value.get(tag)
        if metric is None or metric.get(key) is None:
            return None
        if metric["unit"] != unit:
            raise _LayoutError(f"{tag} is in {shorten(metric['unit'], 20)}, not in {unit}")
        return float(metric[key])

    total = stat("output_token_throughput", "avg", "tokens/sec")
    requests = stat("request_count", "avg", "requests")
    if total is None or requests is None:
        raise _LayoutError("it has no output_token_throughput or request_count")
    phases = field_at(value, "input_config", "phases")
    # Phases of the other kind, warm-ups, are not in the figures.
    measured = [phase for phase in phases or () if phase.get("kind", "profiling") == "profiling"]
    concurrencies = [phase.get("concurrency") for phase in measured if not phase.get("exclude_from_results")]
    yield LoadTest(
        name=name,
        tool="aiperf",
        model=", ".join(_models(value)),
        concurrency=_count(concurrencies[0]) if len(concurrencies) == 1 and concurrencies[0] is not None else None,
        requests=int(requests),
        failed=int(stat("error_request_count", "avg", "requests") or 0),
        total_tokens_per_s=total,
        tokens_per_s=stat("output_token_throughput_per_user", "avg", "tokens/sec/user"),
        first_ms=stat("time_to_first_token", "p50", "ms"),
        first_ms_p99=stat("time_to_first_token", "p99", "ms"),
        between_ms=stat("inter_chunk_latency", "p50", "ms") or stat("inter_token_latency", "p50", "ms"),
        between_ms_p99=stat("inter_chunk_latency", "p99", "ms") or stat("inter_token_latency", "p99", "ms"),
        accept_length=stat("spec_decode_token_weighted_acceptance_length", "avg", "ratio"),
    )


def _models(value: Row) -> list[str]:
    """The names of the models in aiperf's configuration."""
    items = field_at(value, "input_config", "models", "items") or []
    return [str(item["name"]) for item in items if isinstance(item, Mapping) and "name" in item]


def field_at(value: Any, *path: str) -> Any:
    """The value at a path in nested JSON; None if a part is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise _LayoutError("a count is not a whole number")
    return value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _check(test: LoadTest) -> None:
    """Raise ValueError for figures that no measurement has."""
    for value in asdict(test).values():
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise _LayoutError("a figure is negative or infinite")
    if not test.requests or not test.total_tokens_per_s:
        raise _LayoutError("no request was answered")


# The fields that only one layout has -> the reader of that layout.
_LAYOUTS: tuple[tuple[set[str], Callable[[str, Row], Iterator[LoadTest]]], ...] = (
    ({"output_throughput", "request_throughput", "completed", "model_id"}, _vllm),
    ({"metadata", "benchmarks", "config"}, _guidellm),
    ({"aiperf_version", "schema_version"}, _aiperf),
)


def as_rows(tests: Sequence[LoadTest]) -> list[dict[str, Any]]:
    """The measurements as JSON. `of_all_ratio`: the total rate divided by that of the first one at its concurrency."""
    first: dict[int, LoadTest] = {}
    rows = []
    for test in tests:
        ratio = None
        if test.concurrency is not None and first.setdefault(test.concurrency, test) is not test:
            ratio = test.total_tokens_per_s / first[test.concurrency].total_tokens_per_s
        rows.append(asdict(test) | {"of_all_ratio": ratio})
    return rows
