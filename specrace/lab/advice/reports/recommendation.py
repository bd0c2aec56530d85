"""What a report on a recommendation says: what was measured, the figures, remarks, what to paste, and sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.recommend import Recommender, thriftiest
from specrace.lab.advice.reports.blocks import Block, Bullets, Code, Paragraph, Report, Section, Table
from specrace.lab.scoring.sweep import DRAFT_SIZE_OPTIONS

_METHOD = (
    "No model ran. Each logged answer is taken as what the model would print; a lane drafts at each step from the "
    "text before it, and the draft tokens that equal the answer are accepted, plus the model's own next token. "
    "Tokens per step are the answers' tokens over their steps. The speedup is a forecast for decoding, without "
    "prefill: a step costs one forward over its rows, by the cost curve, and the drafter's own time, where the curve "
    "has milliseconds."
)


def recommendation_report(recommender: Recommender, result: Mapping[str, Any], logs: str, written: str) -> Report:
    """The report on a `result` of `advice.report`. `logs`: the logs' names. `written`: what wrote it, and when."""
    sections = [
        Section("Recommendation", [Bullets(result["text"])]),
        Section("What was measured", list(_measured(recommender, result, logs))),
        Section("Figures", list(_tables(recommender, result))),
        Section("Remarks on the log", [Bullets(result["remarks"] or ["None."])]),
    ]
    if result["option_notes"]:
        sections.append(Section("Requests that an engine treats differently", [Bullets(result["option_notes"])]))
    sections += [
        Section("To paste", list(_exports(result["exports"]))),
        Section("Not tested", [Bullets(result["not_tested"])]),
        Section("Sources", [Bullets(list(_sources(result["exports"])))]),
    ]
    title = f"Speculative decoding: what {logs} would gain"
    return Report(title, written, sections)


def _measured(recommender: Recommender, result: Mapping[str, Any], logs: str) -> Iterator[Block]:
    requests = [recommender.sweep.requests[number] for number in recommender.included]
    tokens = sum(request.output_tokens for request in requests)
    prompt = sum(request.prompt_tokens for request in requests)
    looping = f" {result['looping']:,} requests with a looping output are left out." if result["looping"] else ""
    yield Paragraph(
        f"{logs}: {len(requests):,} requests with {prompt:,} prompt tokens and {tokens:,} output tokens.{looping}"
    )
    yield Paragraph(_METHOD)
    settings = result["settings"]
    kept = "kept" if settings["keep_outputs"] else "not kept"
    facts = [
        f"Batch size: {settings['batch']}.",
        f"Outputs of earlier requests, for lanes that draft from them: {kept}.",
        f"Intervals: 95 %, bootstrapped over requests, seed {settings['seed']}.",
    ]
    if recommender.sweep.fingerprint:
        facts.append(f"The log's prompts and outputs have the SHA-256 {recommender.sweep.fingerprint}.")
    yield Bullets(facts)


def _tables(recommender: Recommender, result: Mapping[str, Any]) -> Iterator[Block]:
    names = dict.fromkeys(recommender.lane(number).name for number in recommender.lanes[1:])
    best = [
        thriftiest(
            recommender.forecast, [number for number in recommender.lanes[1:] if recommender.lane(number).name == name]
        )
        for name in names
    ]
    rows = [_row(recommender.recommendation(number)) for number in (recommender.lanes[0], *best)]
    header = ("lane", "options", "draft tokens", "tokens per step", "forecast speedup")
    yield Table("Each lane with the best of its settings", header, rows)
    if len(result["groups"]) > 1:
        groups = [
            (row["category"], str(row["requests"]), _interval(row, "tau"), _interval(row, "speedup"), row["advice"])
            for row in result["groups"]
        ]
        titles = ("category", "requests", "tokens per step", "forecast speedup", "advice")
        yield Table("The recommended lane by category", titles, groups)
    batches = [(str(row["batch"]), f"{row['speedup']:.2f}", row["best"]["lane"]) for row in result["batches"]]
    yield Table("The recommended lane by batch size", ("batch", "forecast speedup", "best lane there"), batches)


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    options = " ".join(f"{name}={value}" for name, value in row["options"].items() if name not in DRAFT_SIZE_OPTIONS)
    return row["lane"], options, str(row["num_draft"]), _interval(row, "tau"), _interval(row, "speedup")


def _interval(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f} ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def _exports(exports: Mapping[str, Mapping[str, Any] | None]) -> Iterator[Block]:
    for name, export in exports.items():
        title = ENGINES[name].title
        if export is None:
            yield Paragraph(f"{title}: none of its drafters was tried.")
            continue
        forecast = f"{export['tau']:.2f} tokens a step, forecast {export['speedup']:.2f}x"
        yield Paragraph(f"{title}, {export['lane']}: {forecast}.")
        yield Code(export["settings"].rstrip())
        if export["synthetic"]:
            yield Paragraph(f"The same acceptance, for load tests. {export['convention']}")
            yield Code(export["synthetic"])
        # With a single engine these sentences have a section of their own.
        effects = [row["sentence"] for row in export["requests"]] if len(exports) > 1 else []
        if export["notes"] or effects:
            yield Bullets([*export["notes"], *effects])


def _sources(exports: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    for name, export in exports.items():
        engine = ENGINES[name]
        if export is not None and engine.effects_version:
            yield (
                f"{engine.title}: names of settings as in {engine.version}; what it does with requests' options as in "
                f"{engine.effects_version.strip('()')}. Both were read in its source."
            )
    yield "How a log is scored and how costs are forecast: specrace's docs/measuring.md and docs/recommend.md."
