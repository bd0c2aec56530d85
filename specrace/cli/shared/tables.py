"""The bench's results as a table: in the terminal, as Markdown, as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.measure import Measurement
from rich.table import Table

from specrace.cli.shared.terminal import clean, console
from specrace.lab.bench.benchmark import PromptResult


def csv_rows(results: Sequence[PromptResult]) -> Iterator[list[Any]]:
    """Yield a header row, then a row for every measurement.

    `decode_ms` is measured in a run of the lane alone, `interleaved_ms` in a race, in which the lanes take turns.
    """
    times = ("decode_ms", "interleaved_ms", "run_ms", "build_ms", "shared_ms")
    yield ["prompt", "decoder", "repetition", "tokens", "steps", *times, "loop_tokens"]
    for result in results:
        prompt, loops = result.prompt.id, result.loops
        for name, runs in result.runs.items():
            for number, run in enumerate(runs):
                metrics, race_ms = run.metrics, result.interleaved_ms[name][number]
                figures = (metrics.decode_ms, race_ms, run.run_ms, run.build_ms, run.shared_ms)
                yield [prompt, name, number, metrics.tokens, metrics.steps, *figures, loops]
        for name, outputs in result.peer_runs.items():
            for number, output in enumerate(outputs):
                decode_ms = output.run_ms - output.first_ms
                # Peers do not race, and the time to build their tables is not known.
                peer_figures = (decode_ms, "", output.run_ms, "", "")
                yield [prompt, name, number, len(output.tokens), output.steps, *peer_figures, loops]


# "spread": that of the decoding time over the repetitions; "of limit": the share of a forward's time that the device's
# memory and arithmetic need at least (the roofline).
HEADER = (
    "decoder", "tokens/s", "speedup", "tokens/step", "drafted", "accepted", "spread", "whole run", "of limit", "badge",
)  # fmt: skip


# The columns (indices into HEADER) of the two tables into which the table is split for a narrow terminal.
NARROW_TABLES = ((0, 1, 2, 3, 9), (0, 4, 5, 6, 7, 8))
# Wider than any table, in characters.
UNLIMITED_WIDTH = 10_000


def rows(report: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The table's rows: lanes, then peers. `report` is what `bench --json` prints."""
    vanilla_tokens_per_s = report["lanes"][0]["tokens_per_s"]  # lane 0 is vanilla
    for lane in report["lanes"]:
        yield (
            lane["lane"],
            f"{lane['tokens_per_s']:.0f}",
            _speedup(lane),
            f"{lane['tau']:.2f}",
            f"{lane['drafted_per_step']:.1f}",
            f"{lane['acceptance_rate']:.0%}",
            f"{lane['spread']:.0%}",
            f"{lane['run_tokens_per_s']:.0f}",
            f"{lane['roofline']['of_limit']:.0%}",
            _badge(lane, report),
        )
    for peer in report["peers"]:
        yield (
            peer["peer"],
            f"{peer['tokens_per_s']:.0f}",
            f"{peer['tokens_per_s'] / vanilla_tokens_per_s:.2f}x",
            _format_if_known(peer["tau"], ".2f"),
            _format_if_known(peer["drafted_per_step"], ".1f"),
            _format_if_known(peer["acceptance_rate"], ".0%"),
            f"{peer['spread']:.0%}",
            f"{peer['run_tokens_per_s']:.0f}",
            "",
            _badge(peer, report),
        )


def _format_if_known(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _speedup(lane: Mapping[str, Any]) -> str:
    """The speedup, with its range over several repetitions."""
    low, high = lane["speedup_low"], lane["speedup_high"]
    return f"{lane['speedup']:.2f}x" + (f" ({low:.2f}-{high:.2f})" if low is not None else "")


def _badge(row: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Whether a lane's or a peer's texts are those of the baseline, in words."""
    if row["identical"] is None:
        return "not compared"
    total = len(report["prompts"])
    if row["identical"]:
        return f"identical on {total} of {total}" if row.get("lane") != "vanilla" else "baseline"
    difference = row["first_difference"]
    return f"identical on {row['identical_prompts']} of {total}; first gap {difference['gap']:.3f}, {report['dtype']}"


def sentences(report: Mapping[str, Any]) -> Iterator[str]:
    """The sentences below the table."""
    for comparison in report["comparisons"]:
        yield (
            f"{comparison['lane']} against {comparison['peer']}: {comparison['decode']:.2f}x its decode tokens per "
            f"second, {comparison['run']:.2f}x in the whole run."
        )
    for lane in report["lanes"]:
        split = lane["split_ms"]
        yield (
            f"{lane['lane']}, a step: draft {split['draft']:.3f} ms, target {split['target']:.3f} ms, verify and keep "
            f"{split['keep']:.3f} ms (host {lane['host_share']:.1%}); interleaved over solo "
            f"{lane['interleaved_over_solo']:.2f}; in races fastest on {lane['fastest_on']} of "
            f"{report['counted_prompts']}, at most 3 % slower than the fastest on {lane['near_fastest_on']}."
        )
    yield from _table_times(report)
    for prompt in report["loops"]:
        yield f"Left out, because its output loops: prompt {prompt['id']} ({prompt['loop_tokens']} tokens)."
    if report["cut_at_limit"] and "scripted" not in report:
        yield f"Cut at the limit of new tokens: {len(report['cut_at_limit'])} of {len(report['prompts'])} outputs."
    if report["settings"]["earlier_outputs"] == "kept":
        yield "Lanes that can draft from outputs of earlier prompts (fusion, suffix and others) did so."
    if not report["pace"]["disturbed_prompts"]:
        yield report["pace"]["note"]
    yield from report["warnings"]


def _table_times(report: Mapping[str, Any]) -> Iterator[str]:
    """The time to build the lanes' tables: for a prompt, and once for all requests."""
    prompts = report["counted_prompts"]
    built = [f"{lane['lane']} {lane['build_ms'] / prompts:.2f} ms" for lane in report["lanes"] if lane["build_ms"]]
    shared = [f"{lane['lane']} {lane['shared_ms']:.1f} ms" for lane in report["lanes"] if lane["shared_ms"]]
    if built:
        yield f"Tables for a prompt, on the clock: {', '.join(built)}."
    if shared:
        yield f"Built once for all requests, on no clock: {', '.join(shared)}."


def markdown(report: Mapping[str, Any]) -> str:
    """The table as Markdown, with the conditions under which it was measured."""
    machine, versions = report["machine"], report["versions"]
    scripted = f"**Scripted:** {report['scripted']}.\n\n" if "scripted" in report else ""
    table = [HEADER, ("---",) * len(HEADER), *rows(report)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return (
        f"# Bench: {report['model']}, {report['dtype']}, {report['device']}\n\n{scripted}"
        f"{report['date']}; {machine['processor']}, {machine['cores']} cores, {report['threads']} threads, "
        f"{report['engine']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f".\n\n```\n{report['command']}\n```\n\n{len(report['prompts'])} prompts, "
        f"{report['settings']['repetitions']} repetitions; medians. {report['timed']}\n\n"
        + "\n".join(lines)
        + "\n\n"
        + "\n".join(f"- {sentence}" for sentence in sentences(report))
        + "\n"
    )


def _table(lines: Sequence[tuple[str, ...]], columns: Sequence[int]) -> Table:
    """A table of these columns, which are indices into HEADER."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        is_text = HEADER[column] in ("decoder", "badge")
        table.add_column(HEADER[column], justify="left" if is_text else "right", no_wrap=HEADER[column] != "badge")
    for line in lines:
        table.add_row(*(line[column] for column in columns))
    return table


def show(report: Mapping[str, Any]) -> None:
    """Print the table, and the sentences below it."""
    out = console()
    if not out.is_terminal:
        # A file or a pipe has no limited width.
        out.width = UNLIMITED_WIDTH
    device = f"{clean(str(report['model']))}, {report['dtype']}, {clean(str(report['device']))}"
    engine = f"{report['threads']} threads, {clean(report['engine'])}"
    out.print(f"{device}, {engine}; {len(report['prompts'])} prompts, medians", style="bold")
    if "scripted" in report:
        out.print(f"Scripted: {report['scripted']}.", style="bold")
    lines = [tuple(clean(cell) for cell in row) for row in rows(report)]
    table = _table(lines, range(len(HEADER)))
    if Measurement.get(out, out.options.update(width=UNLIMITED_WIDTH), table).maximum <= out.width:
        out.print(table)
    else:
        for columns in NARROW_TABLES:
            out.print(_table(lines, columns))
            out.print()
    for sentence in sentences(report):
        out.print(clean(sentence))
