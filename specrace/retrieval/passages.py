"""Passages: the pieces of a document that are embedded, retrieved and put into the prompt."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from specrace.retrieval.addresses import Addresses
from specrace.retrieval.documents import Document
from specrace.retrieval.sentences import Span, is_heading, split_paragraphs, split_sentences

__all__ = ["Passage", "count_words", "split_by_tokens", "split_passages", "split_sentences"]

# Two characters of a script without spaces count as a word, and so do 24 characters of any other without a blank:
# a text with few words is then also short for an embedder and a prompt.
_SPACELESS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_SPACELESS}]{{1,2}}|[^\s{_SPACELESS}]{{1,24}}")


@dataclass(frozen=True)
class Passage:
    """A piece of a document: `text` is the document's `text[start:end]`, without blanks at its ends."""

    document: str
    title: str
    start: int
    end: int
    text: str
    # Where in the document, for instance "page 3"; "" if the document has no addresses.
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class _Unit:
    """A paragraph, or a piece of one that is too long for a passage; passages are made of these."""

    start: int
    end: int
    words: int
    opens_section: bool
    is_bare_heading: bool


def split_passages(document: Document, *, max_words: int = 110) -> list[Passage]:
    """Cut a document into passages of at most `max_words` words, in order; together they cover all but blanks.

    Whole paragraphs are merged while they fit. A paragraph that is too long is cut between sentences, a sentence that
    is too long between words. A heading stays with the text below it.
    """
    if max_words < 1:
        raise ValueError(f"max_words is {max_words}: a passage holds one word or more")
    units = (unit for span in split_paragraphs(document.text) for unit in _units(document.text, span, max_words))
    addresses = Addresses(document.text, document.marks)
    return [
        Passage(document.name, document.title, start, end, document.text[start:end], addresses.describe(start, end))
        for start, end in _pack(units, max_words)
    ]


def split_by_tokens(
    document: Document, count: Callable[[Sequence[str]], Sequence[int]], *, max_tokens: int, overlap: int = 0
) -> list[Passage]:
    """Cut a document between sentences into passages of at most `max_tokens` tokens, in order, covering all but blanks.

    `count` returns the number of tokens in each text. A passage begins with the last sentences of the passage before
    it, up to `overlap` tokens of them. A sentence that is too long is cut between words.
    """
    if not 0 <= overlap < max_tokens:
        raise ValueError(f"overlap is {overlap}: give less than the {max_tokens} tokens of a passage")
    text, addresses = document.text, Addresses(document.text, document.marks)
    return [
        Passage(document.name, document.title, start, end, text[start:end], addresses.describe(start, end))
        for start, end in _windows(_token_units(text, count, max_tokens), max_tokens, overlap)
    ]


def count_words(text: str) -> int:
    """The number of words; a long run of characters without a blank counts as several."""
    return sum(1 for _ in _WORD.finditer(text))


def _units(text: str, paragraph: Span, max_words: int) -> Iterator[_Unit]:
    start, end = paragraph
    body = text[start:end]
    words = count_words(body)
    if words <= max_words:
        heading = is_heading(body)
        yield _Unit(start, end, words, heading, heading and "\n" not in body)
        return
    for first, last in split_sentences(body):
        opens_section = is_heading(body[first:last])
        for piece_start, piece_end, piece_words in _word_runs(body, first, last, max_words):
            yield _Unit(start + piece_start, start + piece_end, piece_words, opens_section, opens_section)


def _word_runs(text: str, start: int, end: int, max_words: int) -> Iterator[tuple[int, int, int]]:
    """Cut text[start:end] after every `max_words` words: start, end and word count of each run."""
    words = _WORD.finditer(text, start, end)
    for first in words:
        run = [first, *islice(words, max_words - 1)]
        yield first.start(), run[-1].end(), len(run)


def _pack(units: Iterable[_Unit], max_words: int) -> Iterator[Span]:
    """Merge neighbours while they fit; a new section begins a passage unless the one before is still short."""
    held: list[_Unit] = []
    words = 0
    for unit in units:
        full = words + unit.words > max_words
        begins = unit.opens_section and words >= max_words // 3 and not (held and held[-1].is_bare_heading)
        if held and (full or begins):
            carried = _trailing_headings(held, max_words - unit.words)
            yield held[0].start, held[len(held) - len(carried) - 1].end
            held = carried
            words = sum(member.words for member in held)
        held.append(unit)
        words += unit.words
    if held:
        yield held[0].start, held[-1].end


def _trailing_headings(held: list[_Unit], room: int) -> list[_Unit]:
    """The headings that end `held`, if there is text before them and they fit into `room` words."""
    count = 0
    while count < len(held) and held[-1 - count].is_bare_heading:
        count += 1
    carried = held[len(held) - count :]
    fits = count < len(held) and sum(unit.words for unit in carried) <= room
    return carried if fits else []


def _token_units(
    text: str, count: Callable[[Sequence[str]], Sequence[int]], max_tokens: int
) -> Iterator[tuple[Span, int]]:
    """Each sentence with its number of tokens; one with more than `max_tokens` comes word by word."""
    for start, end in split_sentences(text):
        sentence = text[start:end]
        # A word is at least one token, so a sentence of more words is too long without being tokenized.
        tokens = count([sentence])[0] if count_words(sentence) <= max_tokens else max_tokens + 1
        if tokens <= max_tokens:
            yield (start, end), tokens
        else:
            words = [word.span() for word in _WORD.finditer(text, start, end)]
            yield from zip(words, count([text[first:last] for first, last in words]), strict=True)


def _windows(units: Iterable[tuple[Span, int]], max_tokens: int, overlap: int) -> Iterator[Span]:
    """Merge neighbours while they fit; the last ones, up to `overlap` tokens, also begin the next window."""
    held: deque[tuple[Span, int]] = deque()
    held_tokens = 0
    for span, tokens in units:
        if held and held_tokens + tokens > max_tokens:
            yield held[0][0][0], held[-1][0][1]
            while held and (held_tokens > overlap or held_tokens + tokens > max_tokens):
                held_tokens -= held.popleft()[1]
        held.append((span, tokens))
        held_tokens += tokens
    if held:
        yield held[0][0][0], held[-1][0][1]
