"""The retriever: finds the passages nearest to a question, and marks the sentences that answer it as evidence."""

from __future__ import annotations

import random
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specrace.core.blank import is_blank
from specrace.core.errors import InputError
from specrace.retrieval.code_spans import is_inside, overlapping
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import SearchIndex, rank
from specrace.retrieval.passages import Passage, count_words, split_sentences
from specrace.retrieval.rerank import CANDIDATES, Reranker
from specrace.retrieval.sentences import is_heading, word_set

# The bounds on evidence were set by hand; no measurement of them is kept.
# Sentences with fewer or more words are marked as evidence only if no other sentence is relevant.
MIN_EVIDENCE_WORDS = 4
MAX_EVIDENCE_WORDS = 60
# A sentence with a lower score is not relevant.
MIN_EVIDENCE_SCORE = 0.45
# Of two sentences that share at least this fraction of their words, only the better one is marked.
DUPLICATE_SHARE = 0.8
# What a sentence's score gains if it has all words of the question.
SHARED_WORDS_WEIGHT = 0.35
# The sentences of a passage have about 10 kB of vectors.
MAX_CACHED_PASSAGES = 512
# Irrelevant passages (`noise`) are drawn from the less similar half of a random sample of this size, as reading all
# vectors of a large index would take long.
NOISE_SAMPLE = 256

# Scripts without spaces between words: pairs of neighbouring characters count as words.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# Vowel signs are parts of words, in Hindi for instance, but `\w` does not match them.
_MARKS = "".join(sign for sign in map(chr, range(0x300, 0x1E00)) if unicodedata.category(sign).startswith("M"))
_WORD = re.compile(rf"(?P<spaceless>[{_SPACELESS}]+)|(?:(?![{_SPACELESS}])[\w{_MARKS}])+")
# Words that begin with the same five characters count as the same word.
_STEM_CHARS = 5
_COMMON_WORDS = word_set(
    "a about an and are as at be been by can could did do does explain for from had has have how in is it its me no "
    "not of on or should tell that the their there these they this those to was were what when where which who whom "
    "why with would you your"
)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a passage: `text` is the passage's `text[start:end]`; `evidence` is its rank as evidence, or 0.

    `score` is the cosine to the question, plus a bonus of at most SHARED_WORDS_WEIGHT for the question's words in it.
    """

    start: int
    end: int
    text: str
    score: float
    evidence: int


@dataclass(frozen=True)
class Hit:
    """A retrieved passage, its cosine to the question (even if a reranker chose it), and its sentences in order.

    `left_out` is the number of characters of the passage that were left out, because they did not fit into the context.
    """

    passage: Passage
    score: float
    sentences: tuple[Sentence, ...]
    left_out: int = 0


@dataclass(frozen=True)
class _SplitPassage:
    """A passage's sentences: their spans and their unit vectors [len(spans), dim]."""

    spans: tuple[tuple[int, int], ...]
    vectors: Vectors


class Retriever:
    """Finds passages in one index; keeps the vectors of the sentences of the last MAX_CACHED_PASSAGES passages."""

    def __init__(self, index: SearchIndex, embedder: Embedder, reranker: Reranker | None = None) -> None:
        self.index = index
        self.reranker = reranker
        self._embedder = embedder
        self._cache: OrderedDict[int, _SplitPassage] = OrderedDict()
        self._lock = threading.Lock()

    def retrieve(
        self,
        question: str,
        *,
        top: int = 4,
        max_evidence: int = 3,
        evidence_ratio: float = 0.5,
        noise: int = 0,
        seed: int = 0,
    ) -> list[Hit]:
        """Return the `top` passages nearest to the question, best first, without duplicates, their evidence marked.

        Over all passages at most `max_evidence` sentences are marked. Each scores at least `evidence_ratio` times the
        best score, and at least MIN_EVIDENCE_SCORE; if none does, the documents do not answer the question. With
        `noise`, that many of the `top` passages are irrelevant. They are drawn at random from passages far from the
        question and shuffled among the others; `seed` fixes both. Raises InputError for a blank question.
        """
        if is_blank(question):
            raise InputError("The question is blank: write one.")
        if top < 1:
            raise ValueError(f"top is {top}: give at least 1")
        question_vector = self._embedder.embed([question])[0]
        best = self._best(question, question_vector, top - noise)
        if noise:
            best = self._with_noise(question_vector, best, noise, random.Random(f"{seed} {question}"))
        passages = [self.index.passages[number] for number, _ in best]
        split_passages = self._split([number for number, _ in best])
        scored = [
            _score(question, question_vector, passage, split)
            for passage, split in zip(passages, split_passages, strict=True)
        ]
        headings = [_headings(passage, sentences) for passage, sentences in zip(passages, scored, strict=True)]
        marked = _mark_evidence(scored, headings, max_evidence, evidence_ratio)
        return [
            Hit(passage, score, sentences)
            for passage, (_, score), sentences in zip(passages, best, marked, strict=True)
        ]

    def _best(self, question: str, question_vector: Vectors, top: int) -> list[tuple[int, float]]:
        """The number and cosine of the best `top` passages, chosen by the reranker if there is one."""
        if self.reranker is None:
            return self._distinct(question_vector, top)
        candidates = self._distinct(question_vector, max(top, CANDIDATES))
        scores = self.reranker(question, [self.index.passages[number] for number, _ in candidates])
        return [candidates[index] for index in np.argsort(-scores, kind="stable")[:top]]

    def _with_noise(
        self, question_vector: Vectors, best: list[tuple[int, float]], count: int, rng: random.Random
    ) -> list[tuple[int, float]]:
        """Mix `best` with `count` passages that are far from the question; with fewer if the index has fewer."""
        total = len(self.index.passages)
        seen_texts = {self._normalised_text(number) for number, _ in best}
        sample = []
        for number in rng.sample(range(total), min(total, NOISE_SAMPLE)):
            if (text := self._normalised_text(number)) not in seen_texts:
                seen_texts.add(text)
                sample.append(number)
        if not sample:
            return best
        far = rank(sample, self.index.vectors_of(sample) @ question_vector)[len(sample) // 2 :]
        mixed = [*best, *rng.sample(far, min(count, len(far)))]
        rng.shuffle(mixed)
        return mixed

    def _distinct(self, question_vector: Vectors, top: int) -> list[tuple[int, float]]:
        """The nearest `top` passages whose texts differ; fewer if the index has fewer."""
        total, wanted = len(self.index.passages), top
        while True:
            distinct: dict[str, tuple[int, float]] = {}
            nearest = self.index.search(question_vector, wanted)
            for number, score in nearest:
                distinct.setdefault(self._normalised_text(number), (number, score))
            if len(distinct) >= top or len(nearest) < wanted or wanted >= total:
                return list(distinct.values())[:top]
            # Duplicates took up results, so a larger search is needed.
            wanted *= 4

    def _normalised_text(self, number: int) -> str:
        """A passage's text with single spaces, so that copies with other line breaks compare equal."""
        return " ".join(self.index.passages[number].text.split())

    def _split(self, numbers: Sequence[int]) -> list[_SplitPassage]:
        """Split passages into sentences with vectors. Passages that are not in the cache are embedded in one batch."""
        with self._lock:
            split_passages = {number: self._cache[number] for number in numbers if number in self._cache}
        missing = [number for number in numbers if number not in split_passages]
        if missing:
            embedded = self._embed_sentences([self.index.passages[number] for number in missing])
            split_passages |= zip(missing, embedded, strict=True)
        with self._lock:
            for number in numbers:
                self._cache[number] = split_passages[number]
                self._cache.move_to_end(number)
            while len(self._cache) > MAX_CACHED_PASSAGES:
                self._cache.popitem(last=False)
        return [split_passages[number] for number in numbers]

    def _embed_sentences(self, passages: Sequence[Passage]) -> list[_SplitPassage]:
        spans_by_passage = [tuple(split_sentences(passage.text)) for passage in passages]
        texts = [
            embedded_sentence(passage, passage.text[start:end])
            for passage, spans in zip(passages, spans_by_passage, strict=True)
            for start, end in spans
        ]
        vectors = self._embedder.embed(texts)
        split_passages, first = [], 0
        for spans in spans_by_passage:
            split_passages.append(_SplitPassage(spans, vectors[first : first + len(spans)]))
            first += len(spans)
        return split_passages


def cut_to_fit(hit: Hit, fits: Callable[[Hit], bool]) -> Hit:
    """The hit with as much of its passage as fits, starting at the best evidence; the passage's `place` says so.

    If not even one character fits, the hit is returned unchanged.
    """
    text = hit.passage.text
    starts_by_rank = {sentence.evidence: sentence.start for sentence in hit.sentences if sentence.evidence}
    begin = starts_by_rank[min(starts_by_rank)] if starts_by_rank else 0
    # Binary search for the largest size that fits.
    fitting, too_long = 0, len(text)
    while too_long - fitting > 1:
        size = (fitting + too_long) // 2
        fitting, too_long = (size, too_long) if fits(_cut(hit, begin, size)) else (fitting, size)
    return _cut(hit, begin, fitting) if fitting else hit


def _cut(hit: Hit, begin: int, size: int) -> Hit:
    """A hit with `size` characters of its passage, from `begin` on, or the last `size` if fewer follow `begin`."""
    passage = hit.passage
    first = max(0, min(begin, len(passage.text) - size))
    last = first + size
    while first < last < len(passage.text) and unicodedata.category(passage.text[last]).startswith("M"):
        # A vowel sign stays with its letter.
        last -= 1
    text = passage.text[first:last]
    first += len(text) - len(text.lstrip())
    text = text.strip()
    last = first + len(text)
    note = f"cut: {len(text):,} of {len(passage.text):,} characters fit into the model's context"
    cut = replace(
        passage,
        start=passage.start + first,
        end=passage.start + last,
        text=text,
        place=", ".join(filter(None, (passage.place, note))),
        code=overlapping(passage.code, first, last),
    )
    sentences = tuple(
        replace(sentence, start=start - first, end=end - first, text=passage.text[start:end])
        for sentence in hit.sentences
        if (start := max(first, sentence.start)) < (end := min(last, sentence.end))
    )
    return Hit(cut, hit.score, sentences, len(passage.text) - len(text))


def embedded_sentence(passage: Passage, sentence: str) -> str:
    """The text that is embedded for a sentence: its document's title comes first, because it may name the subject."""
    return f"{passage.title}: {sentence}"


def _score(question: str, question_vector: Vectors, passage: Passage, split: _SplitPassage) -> list[Sentence]:
    """A passage's sentences with their scores, none of them marked.

    Words shared with the question raise the score, because vectors hardly reflect names and numbers.
    """
    question_words = content_words(question)
    sentences = []
    for (start, end), cosine in zip(split.spans, split.vectors @ question_vector, strict=True):
        text = passage.text[start:end]
        shared = len(question_words & content_words(text)) / max(1, len(question_words))
        sentences.append(Sentence(start, end, text, float(cosine) + SHARED_WORDS_WEIGHT * shared, 0))
    return sentences


def content_words(text: str) -> set[str]:
    """The words of a text without common ones, cut to their first letters; in a script without spaces, letter pairs."""
    words = set[str]()
    for match in _WORD.finditer(text.lower()):
        word = match.group()
        if match["spaceless"]:
            words.update(word[first : first + 2] for first in range(max(1, len(word) - 1)))
        elif word not in _COMMON_WORDS:
            words.add(word[:_STEM_CHARS])
    return words


def _headings(passage: Passage, sentences: Sequence[Sentence]) -> set[int]:
    """The indices of the sentences that are headings; comments in code do not count."""
    return {
        index
        for index, sentence in enumerate(sentences)
        if is_heading(sentence.text) and not is_inside(passage.code, sentence.start)
    }


def _mark_evidence(
    passages: Sequence[Sequence[Sentence]], headings: Sequence[set[int]], max_evidence: int, evidence_ratio: float
) -> list[tuple[Sentence, ...]]:
    """Rank the best sentences of all passages 1, 2, ..., `max_evidence`; return every passage's sentences.

    `headings` has the indices of each passage's headings, which are never evidence.
    """
    # (index of the passage, index of the sentence in it, sentence)
    relevant = [
        (i, j, sentence)
        for i, sentences in enumerate(passages)
        for j, sentence in enumerate(sentences)
        if sentence.score >= MIN_EVIDENCE_SCORE and j not in headings[i]
    ]
    # Very short or long sentences ("Price: $40", a clause of a contract) are used only if no other is relevant.
    candidates = [candidate for candidate in relevant if _has_usual_length(candidate[2].text)] or relevant
    candidates.sort(key=lambda candidate: -candidate[2].score)
    min_score = evidence_ratio * candidates[0][2].score if candidates else 0.0
    ranks: dict[tuple[int, int], int] = {}
    marked_words: list[frozenset[str]] = []
    for i, j, sentence in candidates:
        if sentence.score < min_score or len(marked_words) >= max_evidence:
            break
        words = frozenset(sentence.text.lower().split())
        if all(len(words & other) < DUPLICATE_SHARE * len(words | other) for other in marked_words):
            marked_words.append(words)
            ranks[i, j] = len(marked_words)
    return [
        tuple(replace(sentence, evidence=ranks.get((i, j), 0)) for j, sentence in enumerate(sentences))
        for i, sentences in enumerate(passages)
    ]


def _has_usual_length(text: str) -> bool:
    """Whether a sentence is neither very short nor very long."""
    return MIN_EVIDENCE_WORDS <= count_words(text) <= MAX_EVIDENCE_WORDS
