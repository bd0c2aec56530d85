"""The types that every engine's export shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specrace.core.cost_curve import CostCurve


@dataclass(frozen=True)
class Choice:
    """A lane (a drafting method with its options) to export, and its measured acceptance.

    `num_draft`: the largest number of draft tokens in a step, without the tree's root, the last token emitted. `mean`:
    tokens per step, with the bonus token. `rates[i]`: the share of steps that accept more than i draft tokens.
    """

    lane: str
    options: Mapping[str, Any]
    num_draft: int
    mean: float
    rates: tuple[float, ...]

    def rates_of(self, count: int) -> list[float]:
        """The rates of the first `count` positions; 0 for a position that no step reached."""
        return [round(rate, 4) for rate in (*self.rates, *[0.0] * count)[:count]]

    @property
    def length(self) -> float:
        """The mean accepted length, rounded for a setting."""
        return round(self.mean, 3)


# Ends a sentence, and says how `acceptance_profile` counts at the end of an output.
AT_THE_END = "draft tokens past an output's end are not counted, and the bonus token of its last step is"


@dataclass(frozen=True)
class Export:
    """What to paste into an engine.

    `settings`: the lane's settings. `synthetic`: settings that simulate the measured acceptance, for load tests.
    `convention`: a sentence on what the numbers in `synthetic` count. `files`: name -> content of each file that the
    settings name. `notes`: sentences that a reader must know.
    """

    settings: str
    synthetic: str = ""
    convention: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


REFUSED = "refused"
NOT_DRAFTED = "not drafted"
IGNORED = "option ignored"
OTHER_TEXT = "other text"
LESS_OUTPUT = "less output"
SLOWER = "slower"
AS_MEASURED = "as measured"
# What an engine can do with a request that has an option, the worst first.
EFFECTS = (REFUSED, NOT_DRAFTED, IGNORED, OTHER_TEXT, LESS_OUTPUT, SLOWER, AS_MEASURED)


@dataclass(frozen=True)
class Effect:
    """What an engine that drafts does with a request that has one of these `options` (named as in `request_options`).

    `kind`: one of EFFECTS. `words`: the end of a sentence that begins with the engine's name.
    """

    options: tuple[str, ...]
    kind: str
    words: str


@dataclass(frozen=True)
class Engine:
    """An engine to which lanes can be exported.

    `title`: its name in sentences. `prefix`: the beginning of the names of its twins, our copies of its drafters.
    `nearest`: our lanes that are most like its drafters. `version`: the engine's version whose source has the exported
    option names. `plug_ins`: lane -> a function that gives the settings to load our drafter into the engine, where it
    drafts chains by a cost curve. `effects`: what the engine does with requests that have certain options, in the
    version `effects_version`.
    """

    name: str
    title: str
    prefix: str
    nearest: tuple[str, ...]
    version: str
    export: Callable[[Choice], Export]
    plug_ins: Mapping[str, Callable[[Choice, CostCurve], str]] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    effects_version: str = ""

    def has(self, lane: str) -> bool:
        """Whether a lane can be exported."""
        return lane in self.nearest or (self.prefix != "" and lane.startswith(self.prefix))
