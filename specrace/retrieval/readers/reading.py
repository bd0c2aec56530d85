"""What a reader returns: text with addresses, or a refusal."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from specrace.retrieval.encoding import decode_text
from specrace.retrieval.limits import ReadingLimits

MAX_ADDRESS_CHARS = 120


class Refusal(Exception):
    """Why a file is left out, as the rest of a sentence that begins with the file's name."""


class Mark(NamedTuple):
    """From `start` in the text on, the address is `address`; with a `line`, that and the number of the line."""

    start: int
    address: str
    line: int = 0


@dataclass(frozen=True)
class Reading:
    """A file's text with its addresses in order. `title` may be "". `problems` are sentences as in `Refusal`."""

    title: str
    text: str
    marks: tuple[Mark, ...] = ()
    problems: tuple[str, ...] = ()


class Blocks:
    """Blocks of text, joined by blank lines, with the address of each. `add` raises Refusal for too much text."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._most, self._size = limits.characters, 0
        self._parts: list[str] = []
        self._marks: list[Mark] = []

    def add(self, text: str, address: str = "") -> None:
        """Another block; a blank one is left out."""
        text = text.strip().replace("\0", "").encode("utf-8", "replace").decode()
        if not text:
            return
        address = " ".join(address.split())[:MAX_ADDRESS_CHARS]
        if address and (not self._marks or self._marks[-1].address != address):
            self._marks.append(Mark(self._size, address))
        self._parts.append(text)
        self._size += len(text) + 2
        if self._size > self._most:
            raise Refusal(f"has more than {self._most:,} characters: give a smaller file.")

    @property
    def text(self) -> str:
        """All blocks."""
        return "\n\n".join(self._parts)

    def reading(self, title: str = "", problems: tuple[str, ...] = ()) -> Reading:
        """All blocks with their addresses."""
        return Reading(title, self.text, tuple(self._marks), problems)


def decode(content: bytes) -> str:
    """The text with line feeds only. Raises Refusal."""
    text = decode_text(content)
    if text is None:
        raise Refusal("is not UTF-8 text: save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def load_parser(module: str) -> Any:
    """A parser's module, loaded when a file needs it. Raises Refusal where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Refusal(f"needs the package {module}: run pip install 'specrace[documents]'.") from error
