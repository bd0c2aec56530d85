"""Sentences: where they begin and end in prose and markdown, by rules small enough to read.

Unlike a trained splitter this needs no data. Where a rule is in doubt it keeps two sentences together rather than
cut one in half.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]


def word_set(words: str) -> frozenset[str]:
    """The words of a text written with blanks between them."""
    return frozenset(words.split())


# A run of marks is entered at its first mark only: a line of a million dots must not take quadratic time.
_END = re.compile(
    r"""(?<![.!?…])[.!?…]+ (?:["'”’»)\]*_] | \[\d{1,3}\])* (?=\s|\Z) | [。！？｡؟۔।]+ [”’」』）)]*""",
    re.VERBOSE,
)
_LATIN_MARKS = frozenset(".!?…")
_OPENING = re.compile(r"""[\s"'“‘«(\[*_]*""")
_WORD_BEFORE = re.compile(r"[\w.&-]*\Z")
_WORD_AFTER = re.compile(r"\w*")
_NOT_BLANK = re.compile(r"\S")
_LINE = re.compile(r"^.*$", re.MULTILINE)
_LINE_MARK = re.compile(r"(?:[-*+•–]|\d{1,3}[.)]|#{1,6})[ \t]|\||```|~~~")
_HEADING_MARK = re.compile(r"#{1,6}[ \t]")
_LIST_NUMBER = re.compile(r"[\s(*_]*(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})\Z")
_LONGEST_WORD = 24

_NEVER_END = word_set("dr mr mrs ms prof fig figs eq eqs vs e.g i.e cf viz approx ca hr fr vgl bzw ggf")
_NUMBERED = word_set("no nos p pp ch vol art par pt sec tab nr nrn abb bd kap abs ziff")
_MAY_END = word_set(
    "al etc inc ltd co corp jr sr ed eds est dept univ st mt ft gen col sgt capt lt sen rep gov hon rev ref refs "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
# German writes a point after an ordinal: "am 31. März", "der 2. Weltkrieg". "am" is English too: before months only.
_ORDINAL = re.compile(r"(?:\b(?P<article>[A-Za-z]+)\s+)?(?<![\d.,])\d{1,2}\Z")
_ARTICLES = word_set("der die das dem den des im vom zum zur beim")
_MONTHS = word_set("Januar Jänner Februar März Mai Juni Juli Oktober Dezember")
_SHARED_MONTHS = word_set("April August September November")
_OPENERS = word_set(
    "A After All Also Although An And As At Because Before Both But By During Each Even For From He Her Here His "
    "How However I If In It Its Later Many Most Nor Not Now On One Or Other Our She Since So Some Such That The "
    "Their Then There These They This Those Thus To Today Two Under Unlike Until We What When Where Which While "
    "Who Why With Yet You Your"
)


def split_sentences(text: str) -> Iterator[Span]:
    """Character spans of the sentences: in order, apart, without blank edges, covering all that is not blank.

    A blank line, a heading, a list item and a table row end a sentence too; another line break does not.
    """
    return (span for start, end in _blocks(text) for span in _sentences_of(text, start, end))


def split_paragraphs(text: str) -> Iterator[Span]:
    """Spans of the runs of lines that no blank line interrupts, without blank edges."""
    paragraph: Span | None = None
    for start, end in _lines(text):
        if start < end:
            paragraph = (paragraph[0] if paragraph else start, end)
        elif paragraph:
            yield paragraph
            paragraph = None
    if paragraph:
        yield paragraph


def is_heading(text: str) -> bool:
    """Whether the text opens with a markdown heading mark."""
    return _HEADING_MARK.match(text) is not None


def _lines(text: str) -> Iterator[Span]:
    """The span of each line without blank edges; empty for a blank line."""
    for found in _LINE.finditer(text):
        line = found[0]
        first = found.end() - len(line.lstrip())
        yield first, first + len(line.strip())


def _blocks(text: str) -> Iterator[Span]:
    """Spans inside which only punctuation ends a sentence: paragraphs, cut around headings and at marked lines."""
    for first, last in split_paragraphs(text):
        block_start, block_end = first, first
        for start, end in _lines(text[first:last]):
            line_start = first + start
            cut = _LINE_MARK.match(text, line_start) or _HEADING_MARK.match(text, block_start)
            if cut and line_start > block_start:
                yield block_start, block_end
                block_start = line_start
            block_end = first + end
        yield block_start, block_end


def _sentences_of(text: str, start: int, end: int) -> Iterator[Span]:
    first = start
    for mark in _END.finditer(text, start, end):
        follower = _NOT_BLANK.search(text, mark.end(), end)
        if follower and _ends_sentence(text, mark, first, end):
            yield first, mark.end()
            first = follower.start()
    yield first, end


def _ends_sentence(text: str, mark: re.Match[str], first: int, end: int) -> bool:
    """Judge a run of marks, in the sentence that began at `first`, by the word before it and the word after it."""
    if mark[0][0] not in _LATIN_MARKS:
        return True
    opening = _OPENING.match(text, mark.end(), end)
    after = opening.end() if opening else mark.end()
    next_char = text[after : after + 1]
    if next_char.islower():
        return False
    if mark[0][0] != "." or mark[0].startswith(".."):
        return True
    before = text[max(first, mark.start() - _LONGEST_WORD) : mark.start()]
    found, next_found = _WORD_BEFORE.search(before), _WORD_AFTER.match(text, after, end)
    word, next_word = found[0].lower() if found else "", next_found[0] if next_found else ""
    if _is_ordinal(before, next_word):
        return False
    if word in _NEVER_END or _is_list_number(text[first : min(mark.start(), first + 9)]):
        return False
    if word in _NUMBERED:
        return not next_char.isdigit()
    if word in _MAY_END or _has_initials(word):
        return next_word in _OPENERS
    return True


def _is_list_number(sentence: str) -> bool:
    """Whether all that stands before the mark is the number or letter of a list item."""
    return _LIST_NUMBER.match(sentence) is not None


def _is_ordinal(before: str, next_word: str) -> bool:
    """Whether a German ordinal stands before the mark, by its article and the month or noun after it."""
    found = _ORDINAL.search(before)
    if found is None or next_word in _MONTHS:
        return found is not None
    article = (found["article"] or "").lower()
    if next_word in _SHARED_MONTHS:
        return article == "am" or article in _ARTICLES
    return article in _ARTICLES and next_word[:1].isupper() and next_word not in _OPENERS


def _has_initials(word: str) -> bool:
    """J, u.s, ph.d: a single letter, or letters with dots between."""
    return word[:1].isalpha() and (len(word) == 1 or "." in word)
