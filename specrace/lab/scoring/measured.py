"""The lane "measured": what an engine counted of its own drafts, beside the forecasts of that engine's twins.

A twin is our reproduction of an engine's drafter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specrace.engine.lane_name import method_of
from specrace.lab.logs.formats.measured import Measured
from specrace.lab.logs.transcripts import Transcript

# (draft tokens, accepted tokens) of a step -> number of such steps.
StepCounts = Mapping[tuple[int, int], int]

LANE = "measured"


@dataclass
class MeasuredTally:
    """Sums over answers with an engine's counts.

    `drafts`: the steps that had a draft, None if an engine does not say. `accepted_in_text`: accepted tokens that are
    certainly not past the end of the text. `min_steps` and `max_steps` bound the number of steps, which a log may lack.
    """

    outputs: int = 0
    tokens: int = 0
    drafts: int | None = 0
    drafted: int = 0
    accepted: int = 0
    accepted_in_text: int = 0
    min_steps: int = 0
    max_steps: int = 0

    def add(self, counts: Measured) -> None:
        """Count one answer."""
        # `in_text` and `steps` are pairs: the smallest and the largest possible number.
        self.outputs += 1
        self.tokens += counts.tokens
        self.drafts = None if self.drafts is None or counts.drafts is None else self.drafts + counts.drafts
        self.drafted += counts.drafted
        self.accepted += counts.accepted
        self.accepted_in_text += counts.in_text[0]
        self.min_steps += counts.steps[0]
        self.max_steps += counts.steps[1]

    def row(self) -> dict[str, Any]:
        """The metrics by name.

        `tau`: tokens per step; if the number of steps is uncertain, it assumes the most, and `tau_high` the fewest.
        `accept_length`: the engine's own figure, 1 + accepted tokens over steps with a draft, with tokens past the end;
        None without drafts, and if the engine does not count those steps. `acceptance_rate` is 0.0 without drafts.
        """
        return {
            "outputs": self.outputs,
            "tokens": self.tokens,
            "steps": self.max_steps,
            "tau": self.tokens / self.max_steps,
            "tau_high": self.tokens / self.min_steps,
            "drafted_per_step": self.drafted / self.max_steps,
            "acceptance_rate": self.accepted_in_text / self.drafted if self.drafted else 0.0,
            "accepted_past_end": self.accepted - self.accepted_in_text,
            "accept_length": 1.0 + self.accepted / self.drafts if self.drafts else None,
        }


@dataclass
class Agreement:
    """How a twin's forecasts agree with an engine's counts: in how many answers, and the sums of both.

    `equal`: the answers with the same numbers of steps, draft tokens and accepted tokens. `past_end`: the answers that
    differ only in draft tokens, by no more than one draft: a twin cannot know what was drafted past the end.
    """

    outputs: int = 0
    equal: int = 0
    past_end: int = 0
    forecast_steps: int = 0
    measured: MeasuredTally = field(default_factory=MeasuredTally)

    def add(self, counts: Measured, forecast: StepCounts, num_draft: int) -> None:
        """Count one answer, and the steps that a twin with at most `num_draft` draft tokens forecasts for it."""
        drafted = sum(size * number for (size, _), number in forecast.items())
        accepted = sum(taken * number for (_, taken), number in forecast.items())
        steps = sum(forecast.values())
        same_steps = counts.steps[0] <= steps <= counts.steps[1]
        same_accepted = counts.in_text[0] <= accepted <= counts.in_text[1]
        if same_steps and same_accepted and drafted == counts.drafted:
            self.equal += 1
        elif same_steps and same_accepted and abs(drafted - counts.drafted) <= num_draft:
            self.past_end += 1
        self.outputs += 1
        self.forecast_steps += steps
        self.measured.add(counts)

    def as_json(self, lane: str) -> dict[str, Any]:
        """The agreement of a lane, with the tokens per step that were forecast and measured."""
        measured = self.measured.row()
        return {
            "lane": lane,
            "outputs": self.outputs,
            "equal": self.equal,
            "past_end": self.past_end,
            "differ": self.outputs - self.equal - self.past_end,
            "forecast_tau": self.measured.tokens / self.forecast_steps,
            "measured_tau": measured["tau"],
            "measured_tau_high": measured["tau_high"],
        }


class MeasuredBoard:
    """Totals of an engine's counts by group, and how twins agree with them.

    `lanes`: the scored lanes, of which only twins are compared, each as (name, maximum number of draft tokens).
    """

    def __init__(self, lanes: Sequence[tuple[str, int]] = ()) -> None:
        self.lanes = lanes
        self.engines: dict[str, None] = {}
        # By group, and by the number of the twin's lane.
        self._tallies: defaultdict[str, MeasuredTally] = defaultdict(MeasuredTally)
        self._agreements: defaultdict[int, Agreement] = defaultdict(Agreement)

    def add(self, counts: Measured | None, groups: Iterable[str], forecasts: Sequence[StepCounts] = ()) -> None:
        """Count one answer in its groups, and compare it with the steps that each lane forecasts."""
        if counts is None:
            return
        self.engines[counts.engine] = None
        for group in groups:
            self._tallies[group].add(counts)
        for number, (lane, num_draft) in enumerate(self.lanes):
            # An engine's name may be followed by its version.
            twin_of = method_of(lane).twin_of
            if twin_of and counts.engine.partition(" ")[0] == twin_of:
                self._agreements[number].add(counts, forecasts[number], num_draft)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each group, in order of appearance; none if no answer has an engine's counts."""
        return [{"lane": LANE, "category": group, **tally.row()} for group, tally in self._tallies.items()]

    def agreements(self) -> list[dict[str, Any]]:
        """The agreement of each twin of the engine, in the order of the lanes."""
        return [self._agreements[number].as_json(self.lanes[number][0]) for number in sorted(self._agreements)]

    def sentences(self) -> Iterator[str]:
        """Yield what was measured, and which twins draft differently from the engine."""
        rows = self.rows()
        if not rows:
            return
        # The group that has all answers.
        whole = max(rows, key=lambda row: int(row["outputs"]))
        engines = ", ".join(self.engines)
        yield f"measured: {whole['outputs']} outputs have counts of {engines}: {_tokens_per_step(whole)}."
        if whole["accept_length"] is not None:
            yield (
                f"The engine itself says {whole['accept_length']:.3f}: it counts steps with a draft only, and accepted "
                "tokens past the end of an answer, too."
            )
        yield from map(agreement_sentence, self.agreements())


def agreement_sentence(agreement: dict[str, Any]) -> str:
    """How a twin's forecasts agree with what was measured."""
    lane, outputs, differ = agreement["lane"], agreement["outputs"], agreement["differ"]
    exception = " (but for the last step, past the end)" if agreement["past_end"] else ""
    if not differ:
        return f"{lane} drafts as the engine did in all {outputs} outputs{exception}."
    measured = _range(agreement["measured_tau"], agreement["measured_tau_high"])
    return (
        f"{lane} drafts differently from the engine in {differ} of {outputs} outputs, by more than tokens past the "
        f"end explain: {agreement['forecast_tau']:.3f} tokens a step forecast, {measured} measured; the engine has "
        "another drafter, other settings, or drafts from earlier answers."
    )


def measured_sentence(transcripts: Iterable[Transcript]) -> str:
    """What an engine's counts say about its tokens per step, by category; "" if no transcript has any."""
    all_answers, by_group = MeasuredBoard(), MeasuredBoard()
    for transcript in transcripts:
        # A single group, whose name is not shown.
        all_answers.add(transcript.measured, [""])
        by_group.add(transcript.measured, [transcript.category])
    if not all_answers.engines:
        return ""
    (total,) = all_answers.rows()
    rows = by_group.rows()
    parts = ", ".join(f"{row['category']} {_range(row['tau'], row['tau_high'])}" for row in rows)
    by_category = f" ({parts})" if len(rows) > 1 else ""
    engines = ", ".join(all_answers.engines)
    return f"Measured on {engines} in {total['outputs']} requests: {_tokens_per_step(total)}{by_category}."


def _tokens_per_step(row: dict[str, Any]) -> str:
    return f"{_range(row['tau'], row['tau_high'])} tokens a step"


def _range(low: float, high: float) -> str:
    return f"{low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f} to {high:.3f}"
