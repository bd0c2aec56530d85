"""What an engine counted while it wrote an answer: its steps, its draft tokens, and those that were accepted.

The names are those of vLLM 0.32.0 (--per-request-spec-decode-metrics: `metrics.speculative_decoding` in a response).
vLLM also counts the tokens that it accepted past the end of the text. `answers --save-transcripts` writes the same
names, and the sizes of the steps, which tell how many tokens are past the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specrace.lab.logs.formats.base import Row

CONTRADICTION = "the engine's counts of draft tokens contradict the answer or one another, so they are left out"
# vLLM's responses do not name the engine.
DEFAULT_ENGINE = "vLLM"
# Bounds of what a log may say: larger counts contradict it, and longer names of engines are cut.
MAX_COUNT = 2**31
MAX_NAME = 60


@dataclass(frozen=True)
class Measured:
    """An engine's counts of one answer of `tokens` tokens.

    `drafts`: the steps that had a draft, None if the engine does not say. `drafted`, `accepted`: draft tokens, as the
    engine counts them, which may include tokens past the end of the text. `steps`: the smallest and the largest
    possible number of steps; the two are equal if the log has the number of steps or their sizes.
    """

    engine: str
    tokens: int
    drafts: int | None
    drafted: int
    accepted: int
    steps: tuple[int, int]

    @property
    def in_text(self) -> tuple[int, int]:
        """The smallest and the largest possible number of accepted tokens in the text."""
        min_steps, max_steps = self.steps
        return self._in_text(max_steps), self._in_text(min_steps)

    def _in_text(self, steps: int) -> int:
        # Each step adds its accepted tokens and the bonus token to the text. If the end cuts off accepted tokens of the
        # last step, its bonus token is cut off, too.
        return self.accepted if steps == self.tokens - self.accepted else self.tokens - steps + 1


def read_measured(counts: Row | None, tokens: int) -> Measured | None:
    """The engine's counts of an answer of `tokens` tokens; None if there are none. Raises ValueError."""
    if counts is None:
        return None
    accepted_by_step, drafted_by_step = _numbers(counts, "per_step_accepted"), _numbers(counts, "per_step_drafted")
    accepted = _total(counts, "num_accepted_draft_tokens", accepted_by_step)
    drafted = _total(counts, "num_draft_tokens", drafted_by_step)
    # The lists have one number for each step with a draft.
    drafts = _total(counts, "num_spec_steps", None if accepted_by_step is None else [1] * len(accepted_by_step))
    if accepted is None or drafted is None:
        return None
    if not drafted:
        drafts = 0
    _require(accepted <= drafted)
    if accepted_by_step is not None and drafted_by_step is not None:
        _require(len(accepted_by_step) == len(drafted_by_step))
        _require(all(taken <= proposed for taken, proposed in zip(accepted_by_step, drafted_by_step, strict=True)))
    engine = counts.get("engine")
    name = engine[:MAX_NAME] if isinstance(engine, str) and engine else DEFAULT_ENGINE
    steps = _steps(counts, tokens, accepted, _max_past_end(counts, accepted, accepted_by_step))
    _require(drafts is None or drafts <= min(drafted, steps[1]))
    return Measured(engine=name, tokens=tokens, drafts=drafts, drafted=drafted, accepted=accepted, steps=steps)


def _steps(counts: Row, tokens: int, accepted: int, past_end: int) -> tuple[int, int]:
    """`Measured.steps` of an answer. At most `past_end` of its accepted tokens are not in the text."""
    min_steps, max_steps = max(1, tokens - accepted), tokens - accepted + past_end
    sizes = _numbers(counts, "step_sizes")
    if sizes is not None:
        _require(sum(sizes) == tokens and 0 not in sizes)
    known = len(sizes) if sizes is not None else _number(counts, "num_steps")
    if known is not None:
        _require(min_steps <= known <= max_steps)
        return known, known
    _require(min_steps <= max_steps)
    return min_steps, max_steps


def _max_past_end(counts: Row, accepted: int, by_step: list[int] | None) -> int:
    """The most tokens that the last step with a draft can have emitted past the end, its bonus token included."""
    if by_step is not None:
        return by_step[-1] if by_step else 0
    histogram = _numbers(counts, "acceptance_histogram")
    if histogram is not None:
        return max((size for size, number in enumerate(histogram) if number), default=0)
    return accepted


def _total(counts: Row, name: str, by_step: list[int] | None) -> int | None:
    """The total that the engine reports, or the sum over its steps. Raises ValueError if these are known and differ."""
    total = _number(counts, name)
    if by_step is None:
        return total
    _require(total is None or total == sum(by_step))
    return sum(by_step)


def _number(counts: Mapping[str, object], name: str) -> int | None:
    value = counts.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < MAX_COUNT:
        raise ValueError(CONTRADICTION)
    return value


def _numbers(counts: Mapping[str, object], name: str) -> list[int] | None:
    values = counts.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < MAX_COUNT for value in values):
        raise ValueError(CONTRADICTION)
    return values


def _require(consistent: bool) -> None:
    """Raise ValueError for counts that are not consistent."""
    if not consistent:
        raise ValueError(CONTRADICTION)
