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

# Scripts without spaces count a word for two characters, and a run without a blank one for every 24, so that no
# text can be longer than its word count lets an embedder or a prompt expect.
_SPACELESS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_SPACELESS}]{{1,2}}|[^\s{_SPACELESS}]{{1,24}}")


@dataclass(frozen=True)
class Passage:
    """A stretch of a document: `text` is that document's `text[start:end]`, without blank edges."""

    document: str
    title: str
    start: int
    end: int
    text: str
    # Where in the document, for instance "page 3"; "" where it has no addresses.
    place: str = field(default="", compare=False)


@dataclass(frozen=True)
class _Unit:
    """What a passage is made of: a paragraph, or a piece of one that is too long for a passage."""

    start: int
    end: int
    words: int
    opens_section: bool
    is_bare_heading: bool


def split_passages(document: Document, *, max_words: int = 110) -> list[Passage]:
    """Cut a document into passages of at most `max_words` words, in order, covering all that is not blank.

    Whole paragraphs are merged while they fit; a longer one is cut between sentences, a longer sentence between
    words. A heading goes with the text below it.
    """
    if max_words < 1:
        raise ValueError(f"max_words is {max_words}: a passage holds one word or more")
    units = (unit for span in split_paragraphs(document.text) for unit in _units(document.text, span, max_words))
    addresses = Addresses(document.text, document.marks)
    return [
        Passage(document.name, document.title, start, end, document.text[start:end], addresses.of(start, end))
        for start, end in _pack(units, max_words)
    ]


def split_by_tokens(
    document: Document, count: Callable[[Sequence[str]], Sequence[int]], *, most: int, overlap: int = 0
) -> list[Passage]:
    """Cut a document between sentences into passages of at most `most` tokens, in order, covering all but blanks.

    `count` is the number of tokens in each of some texts. A passage repeats as many of the last sentences before it as
    have at most `overlap` tokens. A sentence that is too long is cut between words.
    """
    if not 0 <= overlap < most:
        raise ValueError(f"overlap is {overlap}: less than the {most} tokens of a passage")
    text, addresses = document.text, Addresses(document.text, document.marks)
    return [
        Passage(document.name, document.title, start, end, text[start:end], addresses.of(start, end))
        for start, end in _windows(_token_units(text, count, most), most, overlap)
    ]


def count_words(text: str) -> int:
    """The number of words, where a long run without a blank counts as several."""
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
    """Start, end and word count of the runs of at most `max_words` words between two offsets."""
    words = _WORD.finditer(text, start, end)
    for first in words:
        run = [first, *islice(words, max_words - 1)]
        yield first.start(), run[-1].end(), len(run)


def _pack(units: Iterable[_Unit], max_words: int) -> Iterator[Span]:
    """Merge neighbours while they fit; a section begins a passage once the one before has some body."""
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


def _token_units(text: str, count: Callable[[Sequence[str]], Sequence[int]], most: int) -> Iterator[tuple[Span, int]]:
    """Sentences with their tokens; of those with more than `most`, the words."""
    for start, end in split_sentences(text):
        sentence = text[start:end]
        # No word has less than a token, and an endless sentence must not be tokenized as a whole.
        tokens = count([sentence])[0] if count_words(sentence) <= most else most + 1
        if tokens <= most:
            yield (start, end), tokens
        else:
            words = [word.span() for word in _WORD.finditer(text, start, end)]
            yield from zip(words, count([text[first:last] for first, last in words]), strict=True)


def _windows(units: Iterable[tuple[Span, int]], most: int, overlap: int) -> Iterator[Span]:
    """Merge neighbours while they fit; the last ones of a window, of at most `overlap` tokens, begin the next too."""
    held: deque[tuple[Span, int]] = deque()
    held_tokens = 0
    for span, tokens in units:
        if held and held_tokens + tokens > most:
            yield held[0][0][0], held[-1][0][1]
            while held and (held_tokens > overlap or held_tokens + tokens > most):
                held_tokens -= held.popleft()[1]
        held.append((span, tokens))
        held_tokens += tokens
    if held:
        yield held[0][0][0], held[-1][0][1]
