"""Passages: the pieces of a document that are embedded, retrieved and put into the prompt."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from specrace.retrieval.addresses import Addresses
from specrace.retrieval.code_spans import is_inside, overlapping
from specrace.retrieval.documents import Document
from specrace.retrieval.sentences import Span, is_heading, split_paragraphs, split_sentences
from specrace.retrieval.token_limits import TokenLimit

__all__ = [
    "Passage",
    "count_words",
    "embedded_text",
    "fit_passages",
    "split_by_tokens",
    "split_passages",
    "split_sentences",
]

# In a script without spaces, two characters count as a word. In any other, more than 24 characters in a row count as
# several words, so that a limit on words also bounds the number of tokens. Scripts in order: Thai, Lao and Tibetan;
# Burmese; Khmer; Tai Le to Tai Tham; Javanese and more Burmese; kana and Chinese; Korean; rare Chinese.
_SPACELESS = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\ua980-\ua9df\uaa60-\uaa7f"
    "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\uac00-\ud7af\U00020000-\U0003ffff"
)
# Vowels and tones that are written above, below or after a character: a word does not begin with one.
_SIGNS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f71-\u0f84\u0f8d-\u0fbc\u102b-\u103e\u1056-\u1059"
    "\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u17b4-\u17d3\u17dd\u3099\u309a\uff9e\uff9f"
)
_WORD = re.compile(rf"[{_SPACELESS}]{{1,2}}[{_SIGNS}]*|[^\s{_SPACELESS}]{{1,24}}")


@dataclass(frozen=True)
class Passage:
    """A piece of a document: `text` is the document's `text[start:end]`, without surrounding whitespace."""

    document: str
    title: str
    start: int
    end: int
    text: str
    # The passage's address in the document, such as "page 3"; "" if the document has no addresses.
    place: str = field(default="", compare=False)
    # The spans of `text` in which "# ..." is a comment, not a heading.
    code: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _Unit:
    """A paragraph, or a piece of a paragraph that is too long for one passage. Passages consist of whole units."""

    start: int
    end: int
    words: int
    # Whether the unit begins with a heading.
    opens_section: bool
    # Whether the unit is a heading and nothing else.
    is_bare_heading: bool


def split_passages(document: Document, *, max_words: int = 110, limits: Sequence[TokenLimit] = ()) -> list[Passage]:
    """Cut a document into passages of at most `max_words` words, in order. They cover all text but whitespace.

    Whole paragraphs are merged while they fit. A paragraph that is too long is cut between sentences, a sentence that
    is too long between words. A heading stays with the text below it. A passage with more tokens than one of the
    `limits` is cut as in `fit_passages`. 110 English words have about 140 tokens; the default embedder reads 256.
    """
    if max_words < 1:
        raise ValueError(f"max_words is {max_words}: a passage holds one word or more")
    title, text = document.title, document.text
    spans = list(_pack(_units(document, max_words), max_words))
    too_long = _too_long([f"{title}\n{text[start:end]}" for start, end in spans], limits)
    # The spans, with those that are too long cut into pieces.
    fitting = chain.from_iterable(
        _cut_to_limits(title, text, span, limits) if number in too_long else [span] for number, span in enumerate(spans)
    )
    return _passages(document, fitting)


def split_by_tokens(
    document: Document, count: Callable[[Sequence[str]], Sequence[int]], *, max_tokens: int, overlap: int = 0
) -> list[Passage]:
    """Cut a document between sentences into passages of at most `max_tokens` tokens, in order.

    They cover all text but whitespace. `count` returns the number of tokens in each text. Each passage repeats the last
    sentences of the one before it, up to `overlap` tokens. A sentence that is too long is cut between words.
    """
    if not 0 <= overlap < max_tokens:
        raise ValueError(f"overlap is {overlap}: give less than the {max_tokens} tokens of a passage")
    return _passages(document, _windows(_token_units(document.text, count, max_tokens), max_tokens, overlap))


def _passages(document: Document, spans: Iterable[Span]) -> list[Passage]:
    """The passages with these spans of the document's text."""
    text, addresses = document.text, Addresses(document.text, document.marks)
    return [
        Passage(
            document.name,
            document.title,
            start,
            end,
            text[start:end],
            addresses.describe(start, end),
            overlapping(document.code, start, end),
        )
        for start, end in spans
    ]


def fit_passages(passages: Sequence[Passage], limits: Sequence[TokenLimit]) -> list[Passage]:
    """The passages; one with more tokens than a limit is cut near its middle, and its pieces, too, if necessary.

    It is cut between paragraphs, else between sentences, words or characters. The pieces leave out only whitespace, and
    keep the passage's address.
    """
    too_long = _too_long([embedded_text(passage) for passage in passages], limits)
    fitted = list[Passage]()
    for number, passage in enumerate(passages):
        if number not in too_long:
            fitted.append(passage)
            continue
        text, offset = passage.text, passage.start
        for start, end in _cut_to_limits(passage.title, text, (0, len(text)), limits):
            code = overlapping(passage.code, start, end)
            fitted.append(replace(passage, start=offset + start, end=offset + end, text=text[start:end], code=code))
    return fitted


def _too_long(texts: Sequence[str], limits: Sequence[TokenLimit]) -> set[int]:
    """The numbers of the texts that have more tokens than a limit."""
    return {
        number
        for limit in limits
        for number, num_tokens in enumerate(limit.count(texts))
        if num_tokens > limit.max_tokens
    }


def _cut_to_limits(title: str, text: str, span: Span, limits: Sequence[TokenLimit]) -> Iterator[Span]:
    """Cut a span of the text in two until every piece is within the limits, or is a single character."""
    uncut = [span]
    while uncut:
        start, end = uncut.pop()
        if end - start < 2 or not _too_long([f"{title}\n{text[start:end]}"], limits):
            yield start, end
        else:
            middle = start + _middle(text[start:end])
            uncut += [(middle, end), (start, start + len(text[start:middle].rstrip()))]


def _middle(text: str) -> int:
    """Where to cut a text: where a paragraph, else a sentence, a word or a character begins, nearest to the middle."""
    middle = len(text) // 2
    for spans in (split_paragraphs(text), split_sentences(text), (word.span() for word in _WORD.finditer(text))):
        cuts = [start for start, _ in spans if start]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return middle


def embedded_text(passage: Passage) -> str:
    """The text that is embedded for a passage: its document's title comes first, because it may name the subject."""
    return f"{passage.title}\n{passage.text}"


def count_words(text: str) -> int:
    """The number of words in a text; more than 24 characters without a space count as several."""
    return sum(1 for _ in _WORD.finditer(text))


def _units(document: Document, max_words: int) -> Iterator[_Unit]:
    """A document's units: paragraphs that fit into a passage, else their sentences or groups of words."""
    text = document.text
    for start, end in split_paragraphs(text):
        body = text[start:end]
        fits = count_words(body) <= max_words
        for first, last in [(0, len(body))] if fits else split_sentences(body):
            opens_section = is_heading(body[first:last]) and not is_inside(document.code, start + first)
            # A paragraph that is kept whole may have text in the lines below its heading.
            is_bare_heading = opens_section and not (fits and "\n" in body)
            for group_start, group_end, words in _word_groups(body, first, last, max_words):
                yield _Unit(start + group_start, start + group_end, words, opens_section, is_bare_heading)


def _word_groups(text: str, start: int, end: int, max_words: int) -> Iterator[tuple[int, int, int]]:
    """Cut text[start:end] after every `max_words` words; yield the start, end and word count of each group."""
    words = _WORD.finditer(text, start, end)
    for first in words:
        group = [first, *islice(words, max_words - 1)]
        yield first.start(), group[-1].end(), len(group)


def _pack(units: Iterable[_Unit], max_words: int) -> Iterator[Span]:
    """Merge neighbouring units into passages of at most `max_words` words; yield the span of each passage.

    A section begins a new passage, unless the passage before it is less than a third full (a guess: a passage of a line
    or two says little by itself) or ends with a heading.
    """
    passage: list[_Unit] = []
    words = 0
    for unit in units:
        is_full = words + unit.words > max_words
        ends_with_heading = bool(passage) and passage[-1].is_bare_heading
        is_new_section = unit.opens_section and words >= max_words // 3 and not ends_with_heading
        if passage and (is_full or is_new_section):
            headings = _trailing_headings(passage, max_words - unit.words)
            yield passage[0].start, passage[len(passage) - len(headings) - 1].end
            passage = headings
            words = sum(heading.words for heading in headings)
        passage.append(unit)
        words += unit.words
    if passage:
        yield passage[0].start, passage[-1].end


def _trailing_headings(units: list[_Unit], max_words: int) -> list[_Unit]:
    """The bare headings at the end of `units`; none if all units are headings or these have more than `max_words`."""
    count = 0
    while count < len(units) and units[-1 - count].is_bare_heading:
        count += 1
    headings = units[len(units) - count :]
    fits = count < len(units) and sum(heading.words for heading in headings) <= max_words
    return headings if fits else []


def _token_units(
    text: str, count: Callable[[Sequence[str]], Sequence[int]], max_tokens: int
) -> Iterator[tuple[Span, int]]:
    """Yield each sentence's span and number of tokens; a sentence of more than `max_tokens` is yielded word by word."""
    for start, end in split_sentences(text):
        sentence = text[start:end]
        # A word is at least one token, so a sentence with more words than `max_tokens` need not be tokenized.
        tokens = count([sentence])[0] if count_words(sentence) <= max_tokens else max_tokens + 1
        if tokens <= max_tokens:
            yield (start, end), tokens
        else:
            words = [word.span() for word in _WORD.finditer(text, start, end)]
            yield from zip(words, count([text[first:last] for first, last in words]), strict=True)


def _windows(units: Iterable[tuple[Span, int]], max_tokens: int, overlap: int) -> Iterator[Span]:
    """Merge neighbouring units into windows of at most `max_tokens` tokens; yield the span of each window.

    The last units of a window, up to `overlap` tokens, also begin the next window.
    """
    window: deque[tuple[Span, int]] = deque()
    window_tokens = 0
    for span, tokens in units:
        if window and window_tokens + tokens > max_tokens:
            yield _window_span(window)
            while window and (window_tokens > overlap or window_tokens + tokens > max_tokens):
                _, dropped_tokens = window.popleft()
                window_tokens -= dropped_tokens
        window.append((span, tokens))
        window_tokens += tokens
    if window:
        yield _window_span(window)


def _window_span(window: deque[tuple[Span, int]]) -> Span:
    """The span from the first unit's start to the last unit's end."""
    (start, _), _ = window[0]
    (_, end), _ = window[-1]
    return start, end
