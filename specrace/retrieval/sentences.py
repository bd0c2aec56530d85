"""Splits prose and markdown into sentences, by rules that are small enough to read.

Unlike a trained splitter, the rules need no data. In doubt they leave two sentences together rather than cut one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int]


def word_set(words: str) -> frozenset[str]:
    """The words of a string, which are separated by whitespace."""
    return frozenset(words.split())


# Punctuation that may end a sentence, with the closing quotes, brackets and citations after it: Latin marks before
# whitespace, or those of other scripts.
# Because of the lookbehind, marks in a row match only at the first one: a million dots must not take quadratic time.
_END = re.compile(
    r"""(?<![.!?…])[.!?…]+ (?:["'”’»)\]*_] | \[\d{1,3}\])* (?=\s|\Z) | [。！？｡؟۔।]+ [”’」』）)]*""",
    re.VERBOSE,
)
_LATIN_MARKS = frozenset(".!?…")
# What may stand before the first word of a sentence.
_OPENING = re.compile(r"""[\s"'“‘«(\[*_]*""")
_WORD_BEFORE = re.compile(r"[\w.&-]*\Z")
_WORD_AFTER = re.compile(r"\w*")
_NOT_BLANK = re.compile(r"\S")
_LINE = re.compile(r"^.*$", re.MULTILINE)
# The beginning of a list item, a heading, a table row or a code fence.
_LINE_MARK = re.compile(r"(?:[-*+•–]|\d{1,3}[.)]|#{1,6})[ \t]|\||```|~~~")
_HEADING_MARK = re.compile(r"#{1,6}[ \t]")
# A number, a letter or a Roman number, perhaps after brackets or emphasis.
_LIST_NUMBER = re.compile(r"[\s(*_]*(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})\Z")
# How many characters before a full stop are searched for an abbreviation or an ordinal.
_MAX_WORD_CHARS = 24
# A list number is shorter than this, including brackets and emphasis.
_MAX_LIST_NUMBER_CHARS = 9

# Abbreviations whose full stop never ends a sentence.
_NEVER_END = word_set("dr mr mrs ms prof fig figs eq eqs vs e.g i.e cf viz approx ca hr fr vgl bzw ggf")
# Abbreviations whose full stop does not end a sentence before a number: "no. 6".
_NUMBERED = word_set("no nos p pp ch vol art par pt sec tab nr nrn abb bd kap abs ziff")
# Abbreviations whose full stop ends a sentence only before a word of _OPENERS.
_MAY_END = word_set(
    "al etc inc ltd co corp jr sr ed eds est dept univ st mt ft gen col sgt capt lt sen rep gov hon rev ref refs "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
# German puts a full stop after an ordinal number: "am 31. März", "der 2. Weltkrieg". "am" is also an English word, so
# it counts only before a month.
_ORDINAL = re.compile(r"(?:\b(?P<article>[A-Za-z]+)\s+)?(?<![\d.,])\d{1,2}\Z")
_ARTICLES = word_set("der die das dem den des im vom zum zur beim")
_MONTHS = word_set("Januar Jänner Februar März Mai Juni Juli Oktober Dezember")
# Months with the same name in English: only after a German article or "am" does the number count as an ordinal.
_SHARED_MONTHS = word_set("April August September November")
# Words that often begin a sentence.
_OPENERS = word_set(
    "A After All Also Although An And As At Because Before Both But By During Each Even For From He Her Here His "
    "How However I If In It Its Later Many Most Nor Not Now On One Or Other Our She Since So Some Such That The "
    "Their Then There These They This Those Thus To Today Two Under Unlike Until We What When Where Which While "
    "Who Why With Yet You Your"
)


def split_sentences(text: str) -> Iterator[Span]:
    """Character spans of the sentences, in order, without surrounding whitespace. They cover all text but whitespace.

    A blank line, a heading, a list item and a table row also end a sentence; any other line break does not.
    """
    return (span for start, end in _blocks(text) for span in _sentences_of(text, start, end))


def split_paragraphs(text: str) -> Iterator[Span]:
    """Character spans of the paragraphs, which blank lines separate, without surrounding whitespace."""
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
    """Whether the text begins with a markdown heading mark."""
    return _HEADING_MARK.match(text) is not None


def _lines(text: str) -> Iterator[Span]:
    """The span of each line, without surrounding whitespace; empty for a blank line."""
    for match in _LINE.finditer(text):
        line = match[0]
        first = match.end() - len(line.lstrip())
        yield first, first + len(line.strip())


def _blocks(text: str) -> Iterator[Span]:
    """Paragraphs, cut around headings and before list items, table rows and code fences.

    Within such a block only punctuation ends a sentence.
    """
    for first, last in split_paragraphs(text):
        block_start, block_end = first, first
        for start, end in _lines(text[first:last]):
            line_start = first + start
            # A line begins a block if it has a mark, or if the block so far is a heading.
            cut = _LINE_MARK.match(text, line_start) or _HEADING_MARK.match(text, block_start)
            if cut and line_start > block_start:
                yield block_start, block_end
                block_start = line_start
            block_end = first + end
        yield block_start, block_end


def _sentences_of(text: str, start: int, end: int) -> Iterator[Span]:
    """Cut the block text[start:end] after the punctuation marks that end a sentence."""
    first = start
    for mark in _END.finditer(text, start, end):
        next_char = _NOT_BLANK.search(text, mark.end(), end)
        if next_char and _ends_sentence(text, mark, first, end):
            yield first, mark.end()
            first = next_char.start()
    yield first, end


def _ends_sentence(text: str, mark: re.Match[str], first: int, end: int) -> bool:
    """Whether a punctuation mark ends the sentence that began at `first`, judged by the words around the mark."""
    if mark[0][0] not in _LATIN_MARKS:
        return True
    opening = _OPENING.match(text, mark.end(), end)
    after = opening.end() if opening else mark.end()
    next_char = text[after : after + 1]
    if next_char.islower():
        return False
    if mark[0][0] != "." or mark[0].startswith(".."):
        return True
    before = text[max(first, mark.start() - _MAX_WORD_CHARS) : mark.start()]
    match, next_match = _WORD_BEFORE.search(before), _WORD_AFTER.match(text, after, end)
    word = match[0].lower() if match else ""
    next_word = next_match[0] if next_match else ""
    if _is_ordinal(before, next_word):
        return False
    if word in _NEVER_END or _is_list_number(text[first : min(mark.start(), first + _MAX_LIST_NUMBER_CHARS)]):
        return False
    if word in _NUMBERED:
        return not next_char.isdigit()
    if word in _MAY_END or _has_initials(word):
        return next_word in _OPENERS
    return True


def _is_list_number(sentence: str) -> bool:
    """Whether the sentence so far is only the number or letter of a list item."""
    return _LIST_NUMBER.match(sentence) is not None


def _is_ordinal(before: str, next_word: str) -> bool:
    """Whether a full stop belongs to a German ordinal, judged by the article before and the month or noun after it."""
    match = _ORDINAL.search(before)
    if match is None:
        return False
    if next_word in _MONTHS:
        return True
    article = (match["article"] or "").lower()
    if next_word in _SHARED_MONTHS:
        return article == "am" or article in _ARTICLES
    return article in _ARTICLES and next_word[:1].isupper() and next_word not in _OPENERS


def _has_initials(word: str) -> bool:
    """Whether a word is a single letter, or letters with dots between them: J, u.s, ph.d."""
    return word[:1].isalpha() and (len(word) == 1 or "." in word)
