"""Whether a lane printed its reference's output: by its tokens or, if a server sent no token ids, by its text.

A lane's reference is vanilla or, for a lane that a server decoded, perhaps another server's lane (`LaneInfo`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specrace.core.events import LaneInfo, Step
from specrace.core.metrics import compare, text_to_compare

# The figures that need token ids, or a server's own counts.
_COUNTED = ("tokens", "steps", "tau", "drafted_per_step", "acceptance_rate", "tokens_per_s", "loop_tokens")


def sends_ids(info: LaneInfo) -> bool:
    """Whether a lane has token ids; a lane that a server decoded lacks them if the server streams text only."""
    return info.served is None or info.served.sends_ids


def unknown_figures(info: LaneInfo, figures: Mapping[str, Any]) -> dict[str, None]:
    """The names of a lane's figures that are 0 because they need token ids and so are not known, each with None."""
    return {} if sends_ids(info) else {name: None for name in _COUNTED if not figures[name]}


@dataclass
class Output:
    """What a lane has printed so far; `sends_ids` is False if a server decoded it and sent no token ids."""

    sends_ids: bool
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: str = ""

    @classmethod
    def of(cls, info: LaneInfo) -> Output:
        """The output of a lane before its first step."""
        return cls(sends_ids(info))

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.texts)

    def add(self, step: Step) -> None:
        """Add what a step printed."""
        self.tokens += step.emitted
        self.texts += step.texts
        self.end = step.end


def compare_outputs(output: Output, reference: Output) -> tuple[bool | None, int | None]:
    """Whether an output equals the reference's, and where they first differ: a token or, without ids, a character.

    (None, None) if either is still empty. Unless both have ended, they are compared up to the end of the shorter one.
    """
    ended = bool(output.end and reference.end)
    if output.sends_ids:
        return compare(output.tokens, reference.tokens, ended=ended)
    return compare(text_to_compare(output.text), text_to_compare(reference.text), ended=ended)


def compare_lane(info: LaneInfo, outputs: Mapping[str, Output]) -> tuple[bool | None, int | None]:
    """A lane compared with its reference, as `compare_outputs` does; (None, None) if a server's lane is its own."""
    if info.reference == info.lane:
        return None, None
    return compare_outputs(outputs[info.lane], outputs[info.reference or "vanilla"])


def has_vanilla_as_reference(info: LaneInfo) -> bool:
    """Whether a lane's tokens are compared with vanilla's; only then can the target say how near a difference was."""
    return sends_ids(info) and not info.reference
