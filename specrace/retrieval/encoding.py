"""A document's bytes as text: UTF-8, or UTF-16 and western European (Windows-1252, Latin-1) where there is no doubt."""

from __future__ import annotations

import codecs
import re

# Without the characters that a text of another encoding, for instance Polish, Turkish or DOS, is full of when it is
# read as Windows-1252.
_WESTERN = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüÿœŒ¡¿€£§°·•–—…‘’‚“”„«»©®™\xa0")
_QUOTE_IN_WORD = re.compile(r"[^\W\d_][‚“”„][^\W\d_]")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f]")
_MOST_OF_LETTERS = 0.25


def decode_text(content: bytes) -> str | None:
    """The text without a byte order mark; None where the encoding is unknown or the content is no text."""
    text = _decode(content, "utf-8-sig")
    if text is not None and "\0" not in text:
        return text
    if encoding := _utf16(content):
        text = _decode(content, encoding)
        return None if text is None or _CONTROL.search(text) else text
    text = _decode(content, "windows-1252")
    return text if text is not None and _is_western(text) else None


def _decode(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None


def _utf16(content: bytes) -> str:
    """The kind of UTF-16 by its mark, or by the zeros that are every second byte of a text in Latin letters; or ""."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    most = 0.9 * (len(content) // 2)
    little, big = content[1::2].count(0), content[::2].count(0)
    return "utf-16-le" if little > most else "utf-16-be" if big > most else ""


def _is_western(text: str) -> bool:
    other = [letter for letter in text if not letter.isascii()]
    letters = sum(map(str.isalpha, text))
    return (
        _WESTERN.issuperset(other)
        and len(other) <= _MOST_OF_LETTERS * letters
        and not _CONTROL.search(text)
        and not _QUOTE_IN_WORD.search(text)
    )
