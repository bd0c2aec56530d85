"""The servers, running engines such as vLLM, that the page's operator named for races.

Visitors choose among their names; no address comes from a visitor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specrace.core.errors import InputError, shorten
from specrace.core.settings import MAX_PAGE_LANES
from specrace.engine.spec import RaceSpec

if TYPE_CHECKING:
    from specrace.workbench import Beside

# A server is asked for its health at most once in this time, however many visitors look.
HEALTH_S = 15.0


@dataclass(frozen=True)
class Health:
    """Whether a server answers, and a sentence about it."""

    name: str
    answers: bool
    sentence: str


class NamedServers:
    """The servers' `names`, and functions to race with them and to ask for their health.

    `race_beside`: (names, reference) -> a function that adds the lanes of these servers to a race, and compares them
    with the server `reference`, or with vanilla if it is "". `describe`: name -> a sentence about what answers at that
    server's address; raises InputError if it cannot race. By default it is the name. `clock` returns seconds.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        race_beside: Callable[[Sequence[str], str], Beside] | None = None,
        describe: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names = tuple(names)
        self._race_beside = race_beside
        self._describe = describe
        self._clock = clock
        self._lock = threading.Lock()
        self._health: tuple[Health, ...] = ()
        self._asked_at = 0.0

    def choose(self, value: Any, spec: RaceSpec) -> tuple[str, ...]:
        """The names of the chosen servers, as a client sent them, in the operator's order.

        Raises InputError for a name that the operator did not give, and for a race in which servers cannot take part.
        """
        if value is None:
            return ()
        if (
            not isinstance(value, Sequence)
            or isinstance(value, str)
            or not all(isinstance(name, str) for name in value)
        ):
            raise InputError("The servers are not a list of names; tick those that are on offer.")
        for name in value:
            if name not in self.names:
                raise InputError(f"This page has no server {shorten(repr(name), 60)}; tick those that are on offer.")
        chosen = tuple(name for name in self.names if name in value)
        if chosen and spec.temperature:
            raise InputError("Servers race at temperature 0 only; set it to 0, or untick the servers.")
        num_lanes = len(spec.lanes) + len(chosen)
        if chosen and num_lanes > MAX_PAGE_LANES:
            raise InputError(
                f"{len(spec.lanes)} lanes and {len(chosen)} of the servers were chosen; the page shows "
                f"{MAX_PAGE_LANES} together, so untick {num_lanes - MAX_PAGE_LANES}."
            )
        return chosen

    def choose_reference(self, value: Any, chosen: Sequence[str]) -> str:
        """The server that the others of `chosen` are compared with, as a client sent its name; "" for vanilla.

        Without a chosen server there is nothing to compare, so the value is only checked. Raises InputError for a name
        that the operator did not give, and for a reference that does not take part or is alone.
        """
        if value in (None, ""):
            return ""
        if value not in self.names:
            raise InputError(
                f"This page has no server {shorten(repr(value), 60)} to compare with; choose one on offer, or vanilla."
            )
        if not chosen:
            return ""
        if value not in chosen or len(chosen) < 2:
            raise InputError(
                f"Servers are to be compared with {value}; tick it and another server, or compare them with vanilla."
            )
        return str(value)

    def beside(self, chosen: Sequence[str], reference: str = "") -> Beside | None:
        """A function that adds the lanes of these servers to a race; None if there is nothing to add.

        They are compared with `reference`: one of the servers, or "" for vanilla.
        """
        return self._race_beside(chosen, reference) if chosen and self._race_beside is not None else None

    def health(self) -> tuple[Health, ...]:
        """Each server's health, at most HEALTH_S seconds old."""
        with self._lock:
            if not self._health or self._clock() > self._asked_at + HEALTH_S:
                self._health = tuple(map(self._ask, self.names))
                self._asked_at = self._clock()
            return self._health

    def _ask(self, name: str) -> Health:
        try:
            return Health(name, True, self._describe(name))
        except InputError as error:
            return Health(name, False, str(error))
