"""Decodes a document's bytes: as UTF-8, or in another encoding if it can be recognised beyond doubt.

Recognised are UTF-16, the western European Windows-1252 and Latin-1, and the encodings of Cyrillic, Greek, Hebrew,
Arabic, Japanese, Chinese and Korean. Those of central Europe and Turkey look too much like the western ones.
"""

from __future__ import annotations

import codecs
import re

# Letters and signs of western Europe. Left out are the characters of Windows-1252 that a text in another encoding,
# such as Polish, Turkish or DOS, is full of when it is decoded wrongly.
_WESTERN = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüÿœŒ¡¿€£§°·•–—…‘’‚“”„«»©®™\xa0")
_QUOTE_IN_WORD = re.compile(r"[^\W\d_][‚“”„][^\W\d_]")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f]")
# In western text at most this share of the letters is beyond ASCII.
_MAX_BEYOND_ASCII = 0.25
# Bytes from which the encoding of another script is recognised: fewer than the minimum have too few letters, and a
# larger sample only takes longer.
_MIN_SAMPLE, _SAMPLE = 100, 16_384
_LATIN_END = "\u0370"
# In text of another script at most this share of the letters beyond ASCII is Latin.
_MAX_LATIN = 0.02
# The largest "chaos", as charset_normalizer measures it, in a text that counts as decoded correctly.
_MAX_CHAOS = 0.1
# UTF-8 may have one damaged character, and beyond that this share of its characters beyond ASCII.
_MAX_DAMAGED = 0.05


def decode_text(content: bytes) -> str | None:
    """The text, without a byte order mark; None if the encoding is unknown or the content is not text."""
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
    """The text if it is UTF-8 that is cut inside a character or has a few wrong bytes, which become U+FFFD; or None.

    Text in another encoding does not pass: hardly any of its bytes beyond ASCII happen to form a UTF-8 character.
    """
    text = content.decode("utf-8-sig", "replace")
    intact = sum(not letter.isascii() and letter != "\ufffd" for letter in text)
    is_utf8 = intact > 1 and text.count("\ufffd") <= 1 + _MAX_DAMAGED * intact
    return text if is_utf8 and not _CONTROL.search(text) else None


def _utf16(content: bytes) -> str:
    """The name of the UTF-16 variant, or "". Without a byte order mark: in Latin text every second byte is zero."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    min_zeros = 0.9 * (len(content) // 2)
    if content[1::2].count(0) > min_zeros:
        return "utf-16-le"
    return "utf-16-be" if content[::2].count(0) > min_zeros else ""


def _is_western(text: str) -> bool:
    beyond_ascii = [letter for letter in text if not letter.isascii()]
    letters = sum(map(str.isalpha, text))
    return (
        _WESTERN.issuperset(beyond_ascii)
        and len(beyond_ascii) <= _MAX_BEYOND_ASCII * letters
        and not _CONTROL.search(text)
        and not _QUOTE_IN_WORD.search(text)
    )


def _other_script(sample: bytes) -> str:
    """The likely encoding, if nearly all letters beyond ASCII are of a script other than Latin; else ""."""
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best() if len(sample) >= _MIN_SAMPLE else None
    if best is None or best.chaos > _MAX_CHAOS:
        return ""
    beyond_ascii = [letter for letter in str(best) if letter.isalpha() and not letter.isascii()]
    latin = sum(letter < _LATIN_END for letter in beyond_ascii)
    return best.encoding if beyond_ascii and latin <= _MAX_LATIN * len(beyond_ascii) else ""
