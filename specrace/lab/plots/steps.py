"""The plots that need every step of a lane (a drafting method): what tokens were copied from, where drafts fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from specrace.core.cost_curve import ASSUMED_GPU
from specrace.core.events import Step
from specrace.lab.advice.forecast import ratio_interval
from specrace.lab.logs.transcripts import Transcript
from specrace.lab.plots.plot import Kind, Mark, Plot
from specrace.lab.plots.sweeps import INTERVALS, SweepView
from specrace.lab.scoring.score import score_output
from specrace.ngrams.past import PastOutputs

# This many documents, those from which the most tokens were copied, have a bar each; all others share one.
MAX_DOCUMENTS = 10
# An answer is cut into the largest of these numbers of parts with at least MIN_STEPS steps in each.
# With fewer, shares of the steps mean little (30 is a rule of thumb).
PARTS = {10: "tenths", 5: "fifths", 2: "halves"}
MAX_PARTS, MIN_STEPS = 10, 30
# What became of a step's draft.
NO_DRAFT, REJECTED, SOME, FULL = "no draft", "rejected at once", "accepted in part", "accepted to its end"
# Outcome -> its colour; accepted and rejected drafts have the page's colours for such tokens.
OUTCOMES = {FULL: "#0072b2", SOME: "#56b4e9", REJECTED: "#b34700", NO_DRAFT: "#767676"}
# Names for what a token was copied from if that is not a document.
ANSWER, REST, UNKNOWN = "the answer so far", "the prompt outside the documents", "no known place"
QUARTERS = ("the prompt's first quarter", "its second quarter", "its third quarter", "its last quarter")


class _Counts:
    """Counts over one lane's steps, by request: accepted draft tokens by source, and steps by tenth of the output and
    outcome.
    """

    def __init__(self, num_requests: int) -> None:
        self.sources: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(num_requests))
        self.outcomes = np.zeros((num_requests, MAX_PARTS, len(OUTCOMES)))

    def add(self, request: int, transcript: Transcript, step: Step, start: int) -> None:
        """Count a step of a request; `start` is the position in the output of the step's first token."""
        part = MAX_PARTS * start // len(transcript.output)
        self.outcomes[request, part, list(OUTCOMES).index(outcome(step))] += 1
        # Drafters that copy say from which position of prompt and output they took a node.
        for node in step.accepted_nodes:
            position = -1 if step.tree.positions is None else step.tree.positions[node]
            self.sources[copied_from(transcript, position)][request] += 1

    def by_part(self, num_parts: int) -> np.ndarray:
        """The outcomes by part of the output [requests, num_parts, outcomes]."""
        return np.asarray(self.outcomes.reshape(len(self.outcomes), num_parts, -1, len(OUTCOMES)).sum(axis=2))


def outcome(step: Step) -> str:
    """What became of a step's draft."""
    if not step.tree.num_draft:
        return NO_DRAFT
    if not step.accepted:
        return REJECTED
    # A draft token was rejected after the accepted ones, or the draft was accepted as far as it went.
    return SOME if step.rejected_branch else FULL


def copied_from(transcript: Transcript, position: int) -> str:
    """Name the text at a position of prompt and output; -1 means that the position is not known.

    A place in the prompt is named by its document or, if documents are not known, by its quarter of the prompt.
    """
    if position < 0:
        return UNKNOWN
    if position >= len(transcript.prompt):
        return ANSWER
    if not transcript.documents:
        return QUARTERS[4 * position // len(transcript.prompt)]
    return next((name for start, end, name in transcript.documents if start <= position < end), REST)


def step_plots(view: SweepView, transcripts: Sequence[Transcript]) -> list[Plot]:
    """Where drafts come from and where they fail, in the fastest lane that reports positions, else in the fastest."""
    for number in view.best_lanes:
        counts = _count(view, number, transcripts)
        if set(counts.sources) - {UNKNOWN}:
            break
    else:
        # No lane reports positions.
        number = view.best_lanes[0]
        counts = _count(view, number, transcripts)
    failures = _failures(view, number, counts)
    return [_sources(view, number, counts), failures] if counts.sources else [failures]


def _count(view: SweepView, number: int, transcripts: Sequence[Transcript]) -> _Counts:
    """Score a lane again, step by step."""
    indices = {request: index for index, request in enumerate(view.recommender.included)}
    lane = view.sweep.lanes[number]
    counts = _Counts(len(indices))
    past = PastOutputs() if view.sweep.keep_outputs else None
    for request, transcript in enumerate(transcripts):
        if request in indices:
            start = 0

            # The defaults keep this request's values.
            def watch(step: Step, index: int = indices[request], transcript: Transcript = transcript) -> None:
                nonlocal start
                counts.add(index, transcript, step, start)
                start += len(step.emitted)

            usable_past = None if past is None else past.excluding(transcript.prompt)
            score_output(lane, transcript, curve=view.sweep.curve or ASSUMED_GPU, past=usable_past, watch=watch)
        if past is not None:
            past.add(transcript.output, transcript.prompt)
    return counts


def _describe_lane(view: SweepView, number: int) -> str:
    return f"the lane {view.sweep.lanes[number].name}, {view.varied_settings(number)}"


def _sources(view: SweepView, number: int, counts: _Counts) -> Plot:
    """The share of accepted draft tokens by what they were copied from."""
    sources = dict(counts.sources)
    # Accepted draft tokens by request.
    total = sum(sources.values())
    named_others = [name for name in (REST, *QUARTERS, ANSWER, UNKNOWN) if name in sources]
    documents = sorted(set(sources) - set(named_others), key=lambda name: -sources[name].sum())
    small_documents = documents[MAX_DOCUMENTS:]
    if small_documents:
        sources[f"{len(small_documents)} other documents"] = np.sum([sources[name] for name in small_documents], axis=0)
        documents = [*documents[:MAX_DOCUMENTS], f"{len(small_documents)} other documents"]
    marks = []
    for name in (*documents, *named_others):
        share = float(sources[name].sum() / np.sum(total))
        marks.append(Mark("", name, "", share, *ratio_interval(view.draws, sources[name], np.asarray(total))))
    return Plot(
        name="sources",
        kind=Kind.RANKS,
        title="Which documents feed drafts" if documents else "What feeds drafts",
        subtitle=view.subtitle(
            _describe_lane(view, number),
            f"{np.sum(total):,.0f} accepted draft tokens",
            f"with {INTERVALS}",
            costs=False,
        ),
        x="Share of accepted draft tokens",
        y="",
        columns=("", "copied from", "", "share", "low", "high"),
        marks=tuple(marks),
        percent=True,
    )


def _failures(view: SweepView, number: int, counts: _Counts) -> Plot:
    """The share of steps by what became of their draft, along the answer."""
    with_enough_steps = (parts for parts in PARTS if counts.by_part(parts).sum(axis=(0, 2)).min() >= MIN_STEPS)
    outcomes = counts.by_part(next(with_enough_steps, min(PARTS)))
    steps = outcomes.sum(axis=2)
    num_parts = outcomes.shape[1]
    marks = [
        Mark(
            "",
            name,
            100 * (part + 1) // num_parts,
            float(outcomes[:, part, column].sum() / steps[:, part].sum()),
            *ratio_interval(view.draws, outcomes[:, part, column], steps[:, part]),
        )
        for column, name in enumerate(OUTCOMES)
        for part in range(num_parts)
        if steps[:, part].any()
    ]
    return Plot(
        name="failures",
        kind=Kind.LINES,
        title="Where drafts fail",
        subtitle=view.subtitle(_describe_lane(view, number), f"with {INTERVALS}", costs=False),
        x=f"How far into the answer, %, by {PARTS[num_parts]}",
        y="Share of steps",
        columns=("", "draft", "up to percent", "share", "low", "high"),
        marks=tuple(marks),
        percent=True,
        colours=OUTCOMES,
    )
