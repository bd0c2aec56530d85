"""Decodes a document's bytes: as UTF-8, or in another encoding if it can be recognised beyond doubt.

Recognised are UTF-16, the western European Windows-1252 and Latin-1, and the encodings of Cyrillic, Greek, Hebrew,
Arabic, Japanese, Chinese and Korean. The encodings of central Europe and Turkey look too much like the western ones.
"""

from __future__ import annotations

import codecs
import re

# Letters and signs of western Europe. Other characters of Windows-1252 are not in the set: they abound in text of
# another encoding, such as Polish, Turkish or DOS, that is wrongly decoded as Windows-1252.
_WESTERN = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüÿœŒ¡¿€£§°·•–—…‘’‚“”„«»©®™\xa0")
_QUOTE_IN_WORD = re.compile(r"[^\W\d_][‚“”„][^\W\d_]")
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f]")
# The numbers below were set by hand; no measurement of them is kept.
# The largest share of non-ASCII letters in western text.
_MAX_NON_ASCII = 0.25
# How many bytes are examined to recognise another script: fewer contain too few letters, and more only take longer.
_MIN_SAMPLE_BYTES, _MAX_SAMPLE_BYTES = 100, 16_384
# The first character after the Latin letters.
_LATIN_END = "\u0370"
# The largest share of Latin letters among the non-ASCII letters of text in another script.
_MAX_LATIN = 0.02
# The largest "chaos", as charset_normalizer measures it, in a text that counts as decoded correctly.
_MAX_CHAOS = 0.1
# UTF-8 text may have one damaged character, plus this share of its non-ASCII characters.
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
    # A long sample ends with a line, because a cut inside a character would mislead the detection.
    line_end = content.rfind(b"\n", 0, _MAX_SAMPLE_BYTES)
    is_cut = line_end > 0 and len(content) > _MAX_SAMPLE_BYTES
    encoding = _other_script(content[: line_end if is_cut else _MAX_SAMPLE_BYTES])
    text = _decode(content, encoding) if encoding else None
    return None if text is None or _CONTROL.search(text) else text


def _decode(content: bytes, encoding: str) -> str | None:
    """The text, or None if the content is not in this encoding."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None


def _damaged_utf8(content: bytes) -> str | None:
    """The text of UTF-8 that is cut inside a character or has a few wrong bytes, which become U+FFFD; else None.

    Text in another encoding does not pass: hardly any of its non-ASCII bytes happen to form a UTF-8 character.
    """
    text = content.decode("utf-8-sig", "replace")
    intact = sum(not letter.isascii() and letter != "\ufffd" for letter in text)
    is_utf8 = intact > 1 and text.count("\ufffd") <= 1 + _MAX_DAMAGED * intact
    return text if is_utf8 and not _CONTROL.search(text) else None


def _utf16(content: bytes) -> str:
    """The UTF-16 variant's name, or "". It has a byte order mark or, in Latin text, 0 in nearly every second byte."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    min_zeros = 0.9 * (len(content) // 2)
    if content[1::2].count(0) > min_zeros:
        return "utf-16-le"
    return "utf-16-be" if content[::2].count(0) > min_zeros else ""


def _is_western(text: str) -> bool:
    """Whether the text, decoded as Windows-1252, looks like a western European language."""
    non_ascii = [letter for letter in text if not letter.isascii()]
    letters = sum(map(str.isalpha, text))
    return (
        _WESTERN.issuperset(non_ascii)
        and len(non_ascii) <= _MAX_NON_ASCII * letters
        and not _CONTROL.search(text)
        and not _QUOTE_IN_WORD.search(text)
    )


def _other_script(sample: bytes) -> str:
    """The likely encoding if nearly all non-ASCII letters belong to a script other than Latin; else ""."""
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best() if len(sample) >= _MIN_SAMPLE_BYTES else None
    if best is None or best.chaos > _MAX_CHAOS:
        return ""
    non_ascii = [letter for letter in str(best) if letter.isalpha() and not letter.isascii()]
    latin = sum(letter < _LATIN_END for letter in non_ascii)
    return best.encoding if non_ascii and latin <= _MAX_LATIN * len(non_ascii) else ""
