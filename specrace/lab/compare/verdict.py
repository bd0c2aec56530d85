"""The verdict of a comparison: at how many requests at a time drafts pay, and how right the forecast was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
# How many kinds of failures are told.
_MAX_FAILURES = 5


def verdict(summary: Mapping[str, Any]) -> str:
    """A paragraph about every server but the baseline, from what `summarise` returns; "" if nothing is measured."""
    baseline = summary["baseline"]
    names = [server["server"] for server in summary["servers"] if server["server"] != baseline]
    return " ".join(sentence for name in names for sentence in _sentences(summary, name))


def _sentences(summary: Mapping[str, Any], name: str) -> Iterator[str]:
    rows = [row for row in summary["rows"] if row["server"] == name]
    measured = [row for row in rows if row["speedup"] is not None]
    if not measured:
        return
    factor = summary["memory"].get(name)
    if factor is not None:
        yield (
            f"No verdict on {name}: it drafts from earlier answers, and was asked the same questions again, with "
            f"{factor:.2f} times as many tokens a step; give --ask-once and restart {name}, or let --launch start it."
        )
    else:
        yield _judge(name, summary["baseline"], measured)
    yield f"Speedup: {'; '.join(map(_speedup, measured))}."
    yield from _tokens_per_step(rows)
    yield _texts(rows)


def _judge(name: str, baseline: str, rows: Sequence[Row]) -> str:
    """Where the server is faster than the baseline, where slower, and where that is not certain."""
    faster = [row["concurrency"] for row in rows if row["speedup"]["low"] > 1.0]
    slower = [row["concurrency"] for row in rows if row["speedup"]["high"] < 1.0]
    unclear = [row["concurrency"] for row in rows if row["concurrency"] not in (*faster, *slower)]
    if len(faster) == len(rows):
        return f"{name} pays at {_requests_in_words(faster)} at a time."
    if len(slower) == len(rows):
        return f"{name} does not pay: it is slower than {baseline} at {_requests_in_words(slower)} at a time."
    parts = [
        f"{words} at {_requests_in_words(numbers)} at a time"
        for words, numbers in (("pays", faster), ("is not certainly faster or slower", unclear), ("is slower", slower))
        if numbers
    ]
    return f"{name} {', '.join(parts)}."


def _requests_in_words(concurrencies: Sequence[int]) -> str:
    """The concurrencies as words, such as "1, 4 and 16 requests"."""
    words = list(map(str, sorted(concurrencies)))
    joined = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{joined} request{'' if words == ['1'] else 's'}"


def _speedup(row: Row) -> str:
    """The measured speedup at one concurrency, after the forecast one if there is one."""
    speedup, forecast = row["speedup"], row["forecast"]
    before = "" if forecast is None else f"forecast {forecast['speedup']:.2f}x, "
    return (
        f"{before}measured {speedup['speedup']:.2f}x ({speedup['low']:.2f} to {speedup['high']:.2f}) "
        f"at {row['concurrency']}"
    )


def _tokens_per_step(rows: Sequence[Row]) -> Iterator[str]:
    pairs = [row for row in rows if row["tau"] is not None]
    if not pairs:
        return
    parts = [
        f"{'' if row['forecast'] is None else format(row['forecast']['tau'], '.3f') + ' forecast, '}"
        f"{_range(row['tau'], row['tau_high'])} measured at {row['concurrency']}"
        for row in pairs
    ]
    yield f"Tokens a step: {'; '.join(parts)}."


def _range(low: float, high: float) -> str:
    return f"{low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f} to {high:.3f}"


def _texts(rows: Sequence[Row]) -> str:
    same, compared = (sum(row[key] for row in rows) for key in ("same_texts", "compared_texts"))
    first = next((row["first_difference"] for row in rows if row["first_difference"] is not None), None)
    where = "" if first is None else f"; the first other text: question {first['question']}, token {first['position']}"
    return f"Texts equal: {same} of {compared}{where}."


def notes(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know about the figures."""
    interrupted = sum(row["interrupted_blocks"] for row in summary["rows"])
    if interrupted:
        count = "One block was" if interrupted == 1 else f"{interrupted} blocks were"
        yield f"{count} interrupted and resumed: the tokens per second of all requests leave such blocks out."
    for row in summary["rows"]:
        where = f"{row['server']} at {row['concurrency']}"
        if row["joined"]:
            yield (
                f"{where}: in {row['joined']} of {row['requests']} answers the chunks are not steps, so the times "
                "between chunks are not those between steps."
            )
        if 0 < row["counted"] < row["requests"]:
            yield f"{where}: tokens per step are those of the {row['counted']} answers whose steps are known."
    for sentence in summary["failures"][:_MAX_FAILURES]:
        yield f"Failed, and not counted: {sentence}"
    if len(summary["failures"]) > _MAX_FAILURES:
        yield f"{len(summary['failures']) - _MAX_FAILURES} more kinds of failures are in --json."
