"""A race's badges and headlines: which lane is fastest, by how much, and whether the texts are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specrace.core.events import Finished, LaneInfo, LaneResult, LaneSpread, Repeated, Started
from specrace.core.metrics import describe_difference, format_speedup
from specrace.views.comparison import sends_ids
from specrace.views.shown import Badge

CUT = "The recording is cut off here; the figures are those of the steps that it has."


def final_badge(result: LaneResult, stopped: bool, dtype: str = "", info: LaneInfo | None = None) -> Badge:
    """The badge of a lane in a finished or stopped race; without `info`, a lane of ours.

    The target's `dtype` may explain a difference; "" if it is shown elsewhere.
    """
    reference = info.reference if info else ""
    if result.lane in ("vanilla", reference):
        return "reference", "reference"
    # Only a lane under rejection sampling has a note.
    if result.note:
        return "law", result.note
    if result.identical is None:
        return "none", "not compared"
    has_ids = info is None or sends_ids(info)
    if result.identical:
        same_text = f"same text as {reference}" if reference else "identical text"
        equal = f"identical to {reference or 'vanilla'}" if has_ids else same_text
        return ("same", "identical so far") if stopped else ("identical", equal)
    where = f" of {reference}" if reference else ""
    if result.differs_at is not None:
        return "differs", f"differs at {'token' if has_ids else 'character'} {result.differs_at}{where}"
    difference = result.first_difference
    if difference is None:
        return "differs", "differs from vanilla"
    return "differs", describe_difference(difference, dtype)


def find_spread(lane: str, repeated: Repeated | None) -> LaneSpread | None:
    """A lane's metrics over several runs; None if the race was run once."""
    if repeated is None:
        return None
    return next(spread for spread in repeated.lanes if spread.lane == lane)


def with_medians(result: LaneResult, repeated: Repeated | None) -> LaneResult:
    """The result; if the race was repeated, with the medians of speedup and tokens per second."""
    spread = find_spread(result.lane, repeated)
    return replace(result, speedup=spread.speedup, tokens_per_s=spread.tokens_per_s) if spread else result


def find_fastest(finished: Finished, repeated: Repeated | None) -> LaneResult:
    """The lane with the highest speedup, the first of several that are level. A server's lane has none (0)."""
    return _find_leaders(finished, repeated)[0]


def _find_leaders(finished: Finished, repeated: Repeated | None) -> list[LaneResult]:
    """The lanes with the highest speedup, rounded as it is shown: decimals that nobody sees do not rank lanes."""
    lanes = [with_medians(lane, repeated) for lane in finished.lanes]
    highest = format_speedup(max(lane.speedup for lane in lanes))
    return [lane for lane in lanes if format_speedup(lane.speedup) == highest]


def format_range(lane: str, repeated: Repeated | None, suffix: str = "") -> str:
    """The range of a lane's speedup, " (2.2 to 2.6)", with `suffix` before the ")"; "" if the race was run once.

    If both ends are the same when rounded, only the suffix is returned.
    """
    spread = find_spread(lane, repeated)
    if spread is None:
        return ""
    # [:-1] cuts off the × at the end of a formatted speedup.
    low, high = (format_speedup(end)[:-1] for end in (spread.low, spread.high))
    return suffix if low == high else f" ({low} to {high}{suffix})"


def headline(started: Started, finished: Finished, repeated: Repeated | None = None) -> str:
    """The race in a sentence or two: the fastest lane, and whether the texts are equal."""
    if finished.stopped:
        return CUT if finished.cut else "Stopped before the end; the figures are those of the tokens so far."
    titles = {info.lane: info.title for info in started.lanes}
    leaders = _find_leaders(finished, repeated)
    if len(finished.lanes) == 1:
        fastest = leaders[0]
        return f"{titles[fastest.lane]} wrote {fastest.tokens} tokens at {fastest.tokens_per_s:.0f} a second."
    sentences = f"{_result_sentence(finished, repeated, leaders, titles)} {_comparison_sentences(started, finished)}"
    served = {info.lane for info in started.lanes if info.served is not None}
    if served:
        rates = [
            f"{lane.tokens_per_s:.0f} on {lane.lane}" if lane.tokens_per_s else f"not known on {lane.lane}"
            for lane in finished.lanes
            if lane.lane in served
        ]
        sentences += f" Measured tokens per second: {', '.join(rates)}; a server's time is not race time."
    looping = any(lane.loop_tokens for lane in finished.lanes)
    return f"{sentences} The text repeats itself, which flatters copying." if looping else sentences


def describe_measured(info: LaneInfo, result: LaneResult, spread: LaneSpread | None) -> str:
    """How a server's lane was measured, in a sentence or two; "" for a lane of ours."""
    served = info.served
    if served is None:
        return ""
    rate = _describe_rate(result, spread)
    others = ", while the other servers were asked, too" if served.together else ""
    counts = ""
    if served.drafted is not None and served.accepted is not None:
        counts = f"; it counts {served.accepted} of {served.drafted} draft tokens as accepted"
    drafts = "" if served.chunks_are_steps else f" Its drafts are not marked: {served.note}."
    note = f" Of its drafts {served.note}." if served.chunks_are_steps and served.note else ""
    return (
        f"Measured on {info.lane} ({served.engine}, {served.model}): {rate}, the first "
        f"{'token' if served.sends_ids else 'text'} after {info.prefill_ms:.0f} ms, network included{others}; this is "
        f"not race time, so it has no speedup{counts}.{drafts}{note}"
    )


def _describe_rate(result: LaneResult, spread: LaneSpread | None) -> str:
    """A server's tokens per second; if they are not known, how long its text took, and its tokens if it counts them."""
    if not result.tokens_per_s:
        tokens = f"{result.tokens} tokens" if result.tokens else "a text whose tokens it does not count"
        return f"{tokens} in {result.decode_ms / 1000:.2f} s from the first chunk to the last"
    slowest, fastest = ("", "") if spread is None else (f"{spread.slowest:.0f}", f"{spread.fastest:.0f}")
    rates = "" if slowest == fastest else f", {slowest} to {fastest} in its runs"
    return f"{result.tokens_per_s:.1f} tokens/s{rates}"


def _result_sentence(
    finished: Finished, repeated: Repeated | None, leaders: Sequence[LaneResult], titles: Mapping[str, str]
) -> str:
    """How much faster the fastest lane is than vanilla, or why the figures do not count."""
    if repeated is not None and repeated.disturbed:
        return repeated.note
    if repeated is None and finished.pace is not None and finished.pace.disturbed:
        # The pace's note also gives the reason, but a headline of two lines has no room for that.
        return "The machine was disturbed: these figures do not count."
    fastest = leaders[0]
    speedup = format_speedup(fastest.speedup)
    if fastest.lane == "vanilla" or speedup == format_speedup(1):
        return "No lane was faster than vanilla."
    runs = "" if repeated is None else f" over {repeated.runs} runs"
    if len(leaders) > 1:
        *others, last = (titles[lane.lane] for lane in leaders)
        return f"{', '.join(others)} and {last} are level: {speedup} vanilla{runs}."
    tau = f", with {fastest.tau:.1f} tokens per step" if fastest.tau > 1 else ""
    return f"{titles[fastest.lane]} is fastest: {speedup} vanilla{format_range(fastest.lane, repeated, runs)}{tau}."


def _comparison_sentences(started: Started, finished: Finished) -> str:
    """Which lanes printed their reference's text, which did not, and which drew another by rejection sampling."""
    infos = {info.lane: info for info in started.lanes}
    # Only lanes under rejection sampling have a note.
    sampled = [infos[lane.lane].title for lane in finished.lanes if lane.note]
    sentences = [f"{' and '.join(sampled)} sampled from vanilla's distribution."] if sampled else []
    for reference in dict.fromkeys(info.reference for info in infos.values()):
        lanes = [lane for lane in finished.lanes if infos[lane.lane].reference == reference and not lane.note]
        compared = [lane for lane in lanes if lane.lane not in ("vanilla", reference)]
        differing = [infos[lane.lane].title for lane in compared if lane.identical is False]
        if differing:
            verb = "differs" if len(differing) == 1 else "differ"
            sentences.append(f"{' and '.join(differing)} {verb} from {reference or 'vanilla'}.")
        elif reference and compared and all(lane.identical for lane in compared):
            sentences.append(f"Every other server printed {reference}'s text.")
        elif not reference and compared:
            whose = " of ours" if any(info.reference for info in infos.values()) else ""
            sentences.append(f"Every {'other ' if sampled else ''}lane{whose} printed the same text.")
    return " ".join(sentences)
