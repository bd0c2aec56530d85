"""What a reader returns: text with addresses, or a refusal."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from specrace.core.blank import is_blank
from specrace.retrieval.encoding import decode_text
from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.sentences import Span

# A heading may be a whole paragraph; an address is one line.
MAX_ADDRESS_CHARS = 120


class Refusal(Exception):
    """Why a file is left out. The message continues a sentence that begins with the file's name: "is encrypted ..."."""


class Mark(NamedTuple):
    """The address of the text from offset `start` to the next mark.

    If `line` is not 0, it is the number of the line that begins at `start`, and addresses end with line numbers.
    """

    start: int
    address: str
    line: int = 0


@dataclass(frozen=True)
class Reading:
    """A file's text, and its addresses in order. `title` may be "". `problems` are worded like a Refusal's message.

    `code` has the spans in which "# ..." is a comment, not a heading, in order.
    """

    title: str
    text: str
    marks: tuple[Mark, ...] = ()
    problems: tuple[str, ...] = ()
    code: tuple[Span, ...] = ()


class Blocks:
    """Collects blocks of text and their addresses; blank lines separate the blocks."""

    def __init__(self, limits: ReadingLimits) -> None:
        self._max_characters, self._size = limits.characters, 0
        self._parts: list[str] = []
        self._marks: list[Mark] = []
        self._code: list[Span] = []

    def add(self, text: str, address: str = "", *, code: bool = False) -> None:
        """Append a block, unless it is blank; `code`: it is code. Raises Refusal if the whole text becomes too long."""
        text = text.strip().replace("\0", "").encode("utf-8", "replace").decode()
        if is_blank(text):
            return
        address = " ".join(address.split())[:MAX_ADDRESS_CHARS]
        if address and (not self._marks or self._marks[-1].address != address):
            self._marks.append(Mark(self._size, address))
        if code:
            self._code.append((self._size, self._size + len(text)))
        self._parts.append(text)
        # Two characters separate the blocks.
        self._size += len(text) + 2
        if self._size > self._max_characters:
            raise Refusal(f"has more than {self._max_characters:,} characters: give a smaller file.")

    @property
    def text(self) -> str:
        """All blocks, joined."""
        return "\n\n".join(self._parts)

    def reading(self, title: str = "", problems: tuple[str, ...] = ()) -> Reading:
        """The result: all blocks, with their addresses."""
        return Reading(title, self.text, tuple(self._marks), problems, tuple(self._code))


def decode(content: bytes) -> str:
    """Decode text, with "\\n" for every line end. Raises Refusal."""
    text = decode_text(content)
    if text is None:
        raise Refusal("is not UTF-8 text: save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def load_parser(module: str) -> Any:
    """Import a parser when a file needs it. Raises Refusal if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Refusal(f"needs the package {module}: run pip install 'specrace[documents]'.") from error
