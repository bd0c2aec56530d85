"""Checks what a recording says about servers' lanes: it must agree with their steps, and must not claim more.

The counts that a server reported cannot be checked further: its rejected tokens are not in the recording.
"""

from __future__ import annotations

from collections.abc import Mapping

from specrace.core.events import LaneInfo, LaneSpread, Served, Step
from specrace.core.metrics import LaneMetrics, ServedMetrics
from specrace.core.settings import MATCH

MAX_TEXT = 1000
MAX_COUNT = 2**31 - 1
# The relative error of a figure that was written as a decimal number.
TOLERANCE = 1e-6


def check_served(info: LaneInfo, served: Served, where: str) -> None:
    """Check a server's description. Raises ValueError with a sentence that begins with `where`, the lane."""
    if any(len(text) > MAX_TEXT for text in (served.engine, served.model, served.note)):
        raise ValueError(f"{where} has a description that is too long")
    counts = (served.first_tokens, served.steps or 0, served.drafted or 0, served.accepted or 0, served.tokens or 0)
    if not all(0 <= count <= MAX_COUNT for count in counts):
        raise ValueError(f"{where} has an impossible count")
    if served.drafted is not None and (served.accepted or 0) > served.drafted:
        raise ValueError(f"{where} counts more accepted than drafted tokens")
    if served.sends_ids and served.tokens is not None:
        raise ValueError(f"{where} has token ids, but also a count of its tokens")
    counted = (served.steps, served.drafted, served.accepted)
    # Without ids, tokens of the first chunk are counted only where every chunk has one.
    if not served.sends_ids and (served.chunks_are_steps or served.first_tokens > 1 or any(counted)):
        raise ValueError(f"{where} has no tokens, but counts steps or drafts")
    if info.verifier != MATCH or info.num_draft or info.build_ms or info.shared_ms:
        raise ValueError(f"{where} was decoded by a server, but has settings or times of ours")


def check_references(infos: Mapping[str, LaneInfo]) -> None:
    """Check that only servers' lanes have a reference, which is such a lane and can be compared. Raises ValueError."""
    for info in infos.values():
        if not info.reference:
            continue
        reference = infos.get(info.reference)
        if info.served is None or reference is None or reference.served is None:
            raise ValueError(f"the lane {info.lane[:40]} has a reference that is not a server's lane")
        if reference.reference != reference.lane or (info.served.sends_ids and not reference.served.sends_ids):
            raise ValueError(f"the lane {info.lane[:40]} cannot be compared with its reference")


def check_drafted(step: Step, served: Served | None) -> None:
    """Check that a server's step has no details that no server reports, and ours no draft count. Raises ValueError."""
    where = f"step {step.index} of {step.lane[:40]}"
    if served is None:
        if step.drafted is not None:
            raise ValueError(f"{where} counts draft tokens that its tree lacks")
        return
    if len(step.tree) != len(step.verdict.path) or step.checks is not None or step.note is not None:
        raise ValueError(f"{where} has details of a draft that no server reports")
    if step.timing.draft_ms or step.timing.keep_ms:
        raise ValueError(f"{where} has times that no server reports")
    if not served.sends_ids and (step.emitted or len(step.texts) != 1):
        raise ValueError(f"{where} has tokens or lacks a text, but its server sends texts")
    if not served.chunks_are_steps and (len(step.tree) > 1 or len(step.emitted) > 1 or step.drafted is not None):
        raise ValueError(f"{where} marks a draft, but the server's chunks are not steps")


def check_totals(info: LaneInfo, metrics: LaneMetrics, num_steps: int) -> None:
    """Check a server's counts against its `num_steps` steps and their `metrics`. Raises ValueError."""
    served = info.served
    if served is None or not num_steps:
        return
    where = f"the lane {info.lane[:40]}"
    # A first chunk with more tokens than the whole answer would make the tokens per second negative.
    is_counted = served.sends_ids or metrics.tokens
    if metrics.decode_ms and is_counted and served.first_tokens > metrics.tokens:
        raise ValueError(f"{where} has more tokens in its first chunk than in all")
    if metrics.steps > metrics.tokens:
        raise ValueError(f"{where} counts more steps than tokens")
    if served.drafted is not None and metrics.accepted > served.drafted:
        raise ValueError(f"{where} shows more accepted tokens than its server drafted")


def check_spread(spread: LaneSpread, metrics: LaneMetrics, where: str) -> None:
    """Check that a server's lane has no speedup, and that its rates include the first run's. Raises ValueError."""
    if not isinstance(metrics, ServedMetrics):
        return
    if spread.high or spread.speedup:
        raise ValueError(f"{where} have a speedup, but a server's time is not race time")
    low, high = spread.slowest * (1 - TOLERANCE), spread.fastest * (1 + TOLERANCE)
    if not low <= metrics.tokens_per_s <= high:
        raise ValueError(f"{where} do not include the first run's rate")
