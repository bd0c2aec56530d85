"""A document's bytes as text: UTF-8, or another encoding where there is no doubt.

That is UTF-16, western European (Windows-1252, Latin-1), and those of other scripts than Latin: Cyrillic, Greek,
Hebrew, Arabic, Japanese, Chinese, Korean. The Latin ones of central Europe and Turkey look too much alike.
"""

from __future__ import annotations

import codecs
import re

# Without the characters that a text of another encoding, for instance Polish, Turkish or DOS, is full of when it is
# read as Windows-1252.
_WESTERN = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüÿœŒ¡¿€£§°·•–—…‘’‚“”„«»©®™\xa0")
_QUOTE_IN_WORD = re.compile(r"[^\W\d_][‚“”„][^\W\d_]")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f]")
_MAX_OF_LETTERS = 0.25
# Bytes by which an encoding is told; below the first there are too few letters, and the more the slower.
_LEAST, _SAMPLE = 100, 16_384
_LATIN_END = "\u0370"
_MAX_LATIN = 0.02
_MAX_MESS = 0.1
# Of its characters beyond ASCII, the share that is damaged in a text that is UTF-8 nevertheless; one always may be.
_MAX_DAMAGED = 0.05


def decode_text(content: bytes) -> str | None:
    """The text without a byte order mark; None where the encoding is unknown or the content is no text."""
    text = _decode(content, "utf-8-sig")
    if text is not None and "\0" not in text:
        return text
    if encoding := _utf16(content):
        text = _decode(content, encoding)
        return None if text is None or _CONTROL.search(text) else text
    if (text := _damaged_utf8(content)) is not None:
        return text
    text = _decode(content, "windows-1252")
    if text is not None and _is_western(text):
        return text
    line_end = content.rfind(b"\n", 0, _SAMPLE)
    encoding = _other_script(content[: line_end if line_end > 0 and len(content) > _SAMPLE else _SAMPLE])
    text = _decode(content, encoding) if encoding else None
    return None if text is None or _CONTROL.search(text) else text


def _decode(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None


def _damaged_utf8(content: bytes) -> str | None:
    """UTF-8 that was cut within a character, or has a few bytes of another encoding, which become U+FFFD; or None.

    In another encoding hardly any bytes beyond ASCII make a character of UTF-8.
    """
    text = content.decode("utf-8-sig", "replace")
    whole = sum(not letter.isascii() and letter != "\ufffd" for letter in text)
    fits = whole > 1 and text.count("\ufffd") <= 1 + _MAX_DAMAGED * whole
    return text if fits and not _CONTROL.search(text) else None


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
        and len(other) <= _MAX_OF_LETTERS * letters
        and not _CONTROL.search(text)
        and not _QUOTE_IN_WORD.search(text)
    )


def _other_script(sample: bytes) -> str:
    """The likely encoding where nearly all letters beyond ASCII are of another script than Latin; or ""."""
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best() if len(sample) >= _LEAST else None
    if best is None or best.chaos > _MAX_MESS:
        return ""
    other = [letter for letter in str(best) if letter.isalpha() and not letter.isascii()]
    latin = sum(letter < _LATIN_END for letter in other)
    return best.encoding if other and latin <= _MAX_LATIN * len(other) else ""
