"""The pictures that need every step of a lane: what its accepted tokens were copied from, and where drafts fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from specrace.core.cost_curve import ASSUMED_GPU
from specrace.core.events import Step
from specrace.lab.forecast import ratio_interval
from specrace.lab.plots.plot import Kind, Mark, Picture
from specrace.lab.plots.sweeps import INTERVALS, Shown
from specrace.lab.score import score_output
from specrace.lab.transcripts import Transcript
from specrace.ngrams.past import PastOutputs

# Documents beyond these are summed up.
MAX_DOCUMENTS = 10
# An answer's parts: as many as have enough steps each.
PARTS = {10: "tenths", 5: "fifths", 2: "halves"}
FINEST, ENOUGH_STEPS = 10, 30
NO_DRAFT, REJECTED, SOME, FULL = "no draft", "rejected at once", "accepted in part", "accepted to its end"
# With the colours that the page has for accepted and for rejected tokens.
OUTCOMES = {FULL: "#0072b2", SOME: "#56b4e9", REJECTED: "#b34700", NO_DRAFT: "#767676"}
ANSWER, REST, UNKNOWN = "the answer so far", "the prompt outside the documents", "no known place"
QUARTERS = ("the prompt's first quarter", "its second quarter", "its third quarter", "its last quarter")


class _Counts:
    """Of one lane, by request: accepted draft tokens by source, and steps by tenth of the output and outcome."""

    def __init__(self, requests: int) -> None:
        self.sources: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros(requests))
        self.outcomes = np.zeros((requests, FINEST, len(OUTCOMES)))

    def add(self, place: int, transcript: Transcript, step: Step, at: int) -> None:
        """Count a step whose first token is number `at` of the output."""
        part = FINEST * at // len(transcript.output)
        self.outcomes[place, part, list(OUTCOMES).index(outcome(step))] += 1
        for node in step.accepted_nodes:
            position = -1 if step.tree.positions is None else step.tree.positions[node]
            self.sources[source(transcript, position)][place] += 1

    def parts(self, count: int) -> np.ndarray:
        """The outcomes by so many parts of the output [requests, count, outcomes]."""
        return np.asarray(self.outcomes.reshape(len(self.outcomes), count, -1, len(OUTCOMES)).sum(axis=2))


def outcome(step: Step) -> str:
    """What became of a step's draft."""
    if not step.tree.num_draft:
        return NO_DRAFT
    return REJECTED if not step.accepted else SOME if step.rejected_branch else FULL


def source(transcript: Transcript, position: int) -> str:
    """What stands at a position of prompt and output, -1 for none: a document of the prompt where these are known."""
    if position < 0:
        return UNKNOWN
    if position >= len(transcript.prompt):
        return ANSWER
    if not transcript.documents:
        return QUARTERS[4 * position // len(transcript.prompt)]
    return next((name for start, end, name in transcript.documents if start <= position < end), REST)


def step_pictures(shown: Shown, transcripts: Sequence[Transcript]) -> list[Picture]:
    """Of the fastest lane that tells where its drafts come from (else the fastest): sources, and where drafts fail."""
    for number in shown.best:
        counts = _count(shown, number, transcripts)
        if set(counts.sources) - {UNKNOWN}:
            break
    else:
        number = shown.best[0]
        counts = _count(shown, number, transcripts)
    return [*([_sources(shown, number, counts)] if counts.sources else []), _failures(shown, number, counts)]


def _count(shown: Shown, number: int, transcripts: Sequence[Transcript]) -> _Counts:
    """Score a lane's best settings again, step by step."""
    places = {request: place for place, request in enumerate(shown.found.counted)}
    lane, sweep, counts = shown.sweep.lanes[number], shown.sweep, _Counts(len(places))
    past = PastOutputs() if sweep.keep_outputs else None
    for request, each in enumerate(transcripts):
        if request in places:
            at = 0

            def watch(step: Step, place: int = places[request], transcript: Transcript = each) -> None:
                nonlocal at
                counts.add(place, transcript, step, at)
                at += len(step.emitted)

            others = None if past is None else past.of_others(each.prompt)
            score_output(lane, each, curve=sweep.curve or ASSUMED_GPU, past=others, watch=watch)
        if past is not None:
            past.add(each.output, each.prompt)
    return counts


def _words(shown: Shown, number: int) -> str:
    return f"the lane {shown.sweep.lanes[number].name}, {shown.words(number)}"


def _sources(shown: Shown, number: int, counts: _Counts) -> Picture:
    """The share of accepted draft tokens by what they were copied from."""
    found, total = dict(counts.sources), sum(counts.sources.values())
    ends = [name for name in (REST, *QUARTERS, ANSWER, UNKNOWN) if name in found]
    documents = sorted(set(found) - set(ends), key=lambda name: -found[name].sum())
    rest = documents[MAX_DOCUMENTS:]
    if rest:
        found[f"{len(rest)} other documents"] = np.sum([found[name] for name in rest], axis=0)
        documents = [*documents[:MAX_DOCUMENTS], f"{len(rest)} other documents"]
    marks = []
    for name in (*documents, *ends):
        share = float(found[name].sum() / np.sum(total))
        marks.append(Mark("", name, "", share, *ratio_interval(shown.draws, found[name], np.asarray(total))))
    return Picture(
        "sources",
        Kind.RANKS,
        "Which documents feed drafts" if documents else "What feeds drafts",
        shown.subtitle(
            _words(shown, number), f"{np.sum(total):,.0f} accepted draft tokens", f"with {INTERVALS}", costs=False
        ),
        "Share of accepted draft tokens",
        "",
        ("", "copied from", "", "share", "low", "high"),
        tuple(marks),
        percent=True,
    )


def _failures(shown: Shown, number: int, counts: _Counts) -> Picture:
    """The share of steps by what became of their draft, over the answer."""
    enough = (each for each in PARTS if counts.parts(each).sum(axis=(0, 2)).min() >= ENOUGH_STEPS)
    outcomes = counts.parts(next(enough, min(PARTS)))
    steps, parts = outcomes.sum(axis=2), outcomes.shape[1]
    marks = [
        Mark(
            "",
            name,
            100 * (part + 1) // parts,
            float(outcomes[:, part, place].sum() / steps[:, part].sum()),
            *ratio_interval(shown.draws, outcomes[:, part, place], steps[:, part]),
        )
        for place, name in enumerate(OUTCOMES)
        for part in range(parts)
        if steps[:, part].any()
    ]
    return Picture(
        "failures",
        Kind.LINES,
        "Where drafts fail",
        shown.subtitle(_words(shown, number), f"with {INTERVALS}", costs=False),
        f"How far into the answer, %, by {PARTS[parts]}",
        "Share of steps",
        ("", "draft", "up to percent", "share", "low", "high"),
        tuple(marks),
        percent=True,
        colours=OUTCOMES,
    )
