"""The bench's figures as a table: in the terminal, as Markdown, as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.measure import Measurement
from rich.table import Table

from specrace.cli.terminal import clean, console
from specrace.lab.bench import PromptResult


def csv_rows(results: Sequence[PromptResult]) -> Iterator[list[Any]]:
    """A header, then every measurement."""
    yield ["prompt", "decoder", "repetition", "tokens", "steps", "decode_ms", "interleaved_ms", "run_ms", "loop_tokens"]
    for each in results:
        for name, runs in each.runs.items():
            for number, run in enumerate(runs):
                m, race_ms = run.metrics, each.interleaved_ms[name][number]
                yield [each.prompt.id, name, number, m.tokens, m.steps, m.decode_ms, race_ms, run.run_ms, each.loops]
        for name, outputs in each.peer_runs.items():
            for number, out in enumerate(outputs):
                decode_ms = out.run_ms - out.first_ms
                yield [each.prompt.id, name, number, len(out.tokens), out.steps, decode_ms, "", out.run_ms, each.loops]


HEAD = (
    "decoder", "tokens/s", "speedup", "tokens/step", "drafted", "accepted", "spread", "whole run", "of limit", "badge",
)  # fmt: skip


# The columns of the two tables that a narrow terminal gets.
NARROW = ((0, 1, 2, 3, 9), (0, 4, 5, 6, 7, 8))
WIDE = 10_000


def rows(found: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The table's rows: lanes, then peers."""
    base = found["lanes"][0]["tokens_per_s"]
    for lane in found["lanes"]:
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
            _badge(lane, found),
        )
    for peer in found["peers"]:
        yield (
            peer["peer"],
            f"{peer['tokens_per_s']:.0f}",
            f"{peer['tokens_per_s'] / base:.2f}x",
            _known(peer["tau"], ".2f"),
            _known(peer["drafted_per_step"], ".1f"),
            _known(peer["acceptance_rate"], ".0%"),
            f"{peer['spread']:.0%}",
            f"{peer['run_tokens_per_s']:.0f}",
            "",
            _badge(peer, found),
        )


def _known(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _speedup(lane: Mapping[str, Any]) -> str:
    """The speedup, with its range over several repetitions."""
    low, high = lane["speedup_low"], lane["speedup_high"]
    return f"{lane['speedup']:.2f}x" + (f" ({low:.2f}-{high:.2f})" if low is not None else "")


def _badge(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if row["identical"] is None:
        return "not compared"
    total = len(found["prompts"])
    if row["identical"]:
        return f"identical on {total} of {total}" if row.get("lane") != "vanilla" else "baseline"
    difference = row["first_difference"]
    return f"identical on {row['identical_prompts']} of {total}; first gap {difference['gap']:.3f}, {found['dtype']}"


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """The sentences below the table."""
    for each in found["comparisons"]:
        yield (
            f"{each['lane']} against {each['peer']}: {each['decode']:.2f}x its decode tokens per second, "
            f"{each['run']:.2f}x in the whole run."
        )
    for lane in found["lanes"]:
        split = lane["split_ms"]
        yield (
            f"{lane['lane']}, a step: draft {split['draft']:.3f} ms, target {split['target']:.3f} ms, verify and keep "
            f"{split['keep']:.3f} ms (host {lane['host_share']:.1%}); interleaved over solo "
            f"{lane['interleaved_over_solo']:.2f}; fastest on {lane['fastest_on']} of {found['counted_prompts']}, "
            f"at most 3 % slower than the fastest on {lane['near_fastest_on']}."
        )
    for each in found["loops"]:
        yield f"Left out, because its output loops: prompt {each['id']} ({each['loop_tokens']} tokens)."
    if found["cut_at_limit"] and "scripted" not in found:
        yield f"Cut at the limit of new tokens: {len(found['cut_at_limit'])} of {len(found['prompts'])} outputs."
    if found["settings"]["earlier_outputs"] == "kept":
        yield "Lanes that can (fusion, suffix and others) also drafted from the outputs of earlier prompts."
    if not found["pace"]["disturbed_prompts"]:
        yield found["pace"]["note"]
    yield from found["warnings"]


def markdown(found: Mapping[str, Any]) -> str:
    """The table with the conditions of its figures."""
    machine, versions = found["machine"], found["versions"]
    scripted = f"**Scripted:** {found['scripted']}.\n\n" if "scripted" in found else ""
    table = [HEAD, ("---",) * len(HEAD), *rows(found)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return (
        f"# Bench: {found['model']}, {found['dtype']}, {found['device']}\n\n{scripted}"
        f"{found['date']}; {machine['processor']}, {machine['cores']} cores, {found['threads']} threads, "
        f"{found['engine']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f".\n\n```\n{found['command']}\n```\n\n{len(found['prompts'])} prompts, "
        f"{found['settings']['repetitions']} repetitions; medians. {found['timed']}\n\n"
        + "\n".join(lines)
        + "\n\n"
        + "\n".join(f"- {sentence}" for sentence in sentences(found))
        + "\n"
    )


def _table(lines: Sequence[tuple[str, ...]], columns: Sequence[int]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        text = HEAD[column] in ("decoder", "badge")
        table.add_column(HEAD[column], justify="left" if text else "right", no_wrap=HEAD[column] != "badge")
    for line in lines:
        table.add_row(*(line[column] for column in columns))
    return table


def show(found: Mapping[str, Any]) -> None:
    """Print the table."""
    out = console()
    if not out.is_terminal:
        # Into a file or a pipe: as wide as it is.
        out.width = WIDE
    device = f"{clean(str(found['model']))}, {found['dtype']}, {clean(str(found['device']))}"
    engine = f"{found['threads']} threads, {clean(found['engine'])}"
    out.print(f"{device}, {engine}; {len(found['prompts'])} prompts, medians", style="bold")
    if "scripted" in found:
        out.print(f"Scripted: {found['scripted']}.", style="bold")
    lines = [tuple(clean(cell) for cell in row) for row in rows(found)]
    whole = _table(lines, range(len(HEAD)))
    if Measurement.get(out, out.options.update(width=WIDE), whole).maximum <= out.width:
        out.print(whole)
    else:
        for part in NARROW:
            out.print(_table(lines, part))
            out.print()
    for sentence in sentences(found):
        out.print(clean(sentence))
