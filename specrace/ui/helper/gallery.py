"""Recorded races that the page plays without a model: the bundled ones, and those that visitors open."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.core.events import Event, Started, Step, ending
from specrace.ui.wire import RaceCard, RecordedAnswer
from specrace.views.headlines import find_fastest
from specrace.views.recording_check import open_recording, read_recording
from specrace.views.reel import reel_json

# Characters of a visitor's file name in an error message.
MAX_NAME = 80
# The facts about a race that its card takes from its first event (`Started.about`).
CARD_FACTS = ("question", "date", "model", "parameters", "dtype", "device")

log = logging.getLogger(__name__)


class Gallery:
    """Recorded races: for each a card, which offers it, and a reel, which the page plays (`specrace.views.reel`).

    A recording that cannot be shown is left out and logged. `in_order`: the cards keep the order of the files.
    """

    def __init__(self, files: Sequence[Path] = (), *, in_order: bool = False) -> None:
        self.cards: list[RaceCard] = []
        self._reels: dict[str, str] = {}
        for file in files:
            try:
                events = read_recording(file)
                self._reels[file.stem] = reel_json(events)
                self.cards.append(describe_card(file.stem, events))
            except InputError as error:
                log.warning("left out of the gallery: %s", error)
        if not in_order:
            # Largest model first, then highest speedup: while no visitor acts, the page plays the first cards' races.
            self.cards.sort(key=lambda card: (-(card.parameters or 0), -card.speedup))

    @classmethod
    def in_folder(cls, folder: Path) -> Gallery:
        """The recordings in a folder, sorted by file name."""
        return cls(sorted(folder.glob("*.jsonl")))

    def play_recorded(self, name: Any) -> RecordedAnswer:
        """The reel of the recording `name` (any JSON value from the page), or an error."""
        reel = self._reels.get(name) if isinstance(name, str) else None
        if reel is None:
            return RecordedAnswer(error="There is no such recording; reload the page.")
        return RecordedAnswer(reel=reel)


def open_recorded(name: str, content: bytes) -> bytes:
    """The reel, as JSON, of a visitor's own recording. Raises InputError."""
    return reel_json(open_recording(content, name[:MAX_NAME] or "This file")).encode()


def compress_recorded(name: str, content: bytes) -> bytes:
    """The reel of a visitor's own recording, compressed by gzip. Raises InputError."""
    return gzip.compress(open_recorded(name, content), mtime=0)


def describe_card(name: str, events: Sequence[Event]) -> RaceCard:
    """The facts that the card of the recording `name` shows."""
    started = events[0]
    assert isinstance(started, Started), "read_recording checks this"
    finished, repeated = ending(events)
    fastest = find_fastest(finished, repeated)
    title = next(info.title for info in started.lanes if info.lane == fastest.lane)
    return RaceCard(
        name=name,
        **{fact: started.about.get(fact) for fact in CARD_FACTS},
        lanes=[info.title for info in started.lanes],
        fastest=title,
        speedup=fastest.speedup,
        temperature=(started.about.get("settings") or {}).get("temperature", 0.0),
        ms=max((event.at_ms for event in events if isinstance(event, Step)), default=0.0),
    )
