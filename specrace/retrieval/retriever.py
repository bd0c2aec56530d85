"""Retrieval: the passages that answer a question, and in them the sentences that are its evidence."""

from __future__ import annotations

import random
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specrace.core.errors import InputError
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import SearchIndex, ranked
from specrace.retrieval.passages import Passage, count_words, split_sentences
from specrace.retrieval.rerank import CANDIDATES, Reranker
from specrace.retrieval.sentences import is_heading, word_set

MIN_EVIDENCE_WORDS = 4
MAX_EVIDENCE_WORDS = 60
MIN_EVIDENCE_SCORE = 0.45
SAME_WORDS = 0.8
SHARED_WORDS_WEIGHT = 0.35
PASSAGES_REMEMBERED = 512
# Irrelevant passages are drawn from the far half of so many.
NOISE_SAMPLE = 256

# Scripts without blanks, whose words no pattern finds: pairs of neighbouring characters stand for them.
_RUNS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# Vowel signs, which belong to the words of Hindi and others, are no letters to `\w`.
_MARKS = "".join(each for each in map(chr, range(0x300, 0x1E00)) if unicodedata.category(each).startswith("M"))
_WORD = re.compile(rf"(?P<run>[{_RUNS}]+)|(?:(?![{_RUNS}])[\w{_MARKS}])+")
_STEM_CHARS = 5
_COMMON_WORDS = word_set(
    "a about an and are as at be been by can could did do does explain for from had has have how in is it its me no "
    "not of on or should tell that the their there these they this those to was were what when where which who whom "
    "why with would you your"
)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a passage: `text` is that passage's `text[start:end]`, `evidence` its rank, 0 if not marked.

    `score` is the cosine to the question plus a bonus of at most SHARED_WORDS_WEIGHT for the question's own words.
    """

    start: int
    end: int
    text: str
    score: float
    evidence: int


@dataclass(frozen=True)
class Hit:
    """A retrieved passage, its cosine to the question (also where a reranker chose it), and its sentences in order."""

    passage: Passage
    score: float
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class _SplitPassage:
    """A passage's sentences: their spans and their unit vectors [len(spans), dim]."""

    spans: tuple[tuple[int, int], ...]
    vectors: Vectors


class Retriever:
    """Answers questions from one index; caches the sentence vectors of the latest passages."""

    def __init__(self, index: SearchIndex, embedder: Embedder, reranker: Reranker | None = None) -> None:
        self.index = index
        self.reranker = reranker
        self._embedder = embedder
        self._remembered: OrderedDict[int, _SplitPassage] = OrderedDict()
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
        """The `top` passages nearest to the question, best first, no text twice, with their evidence marked.

        At most `max_evidence` sentences are marked over all passages, each with at least `evidence_ratio` times
        the best one's score; none where even the best scores below MIN_EVIDENCE_SCORE: then the documents do
        not answer. Of the `top`, `noise` are irrelevant: drawn by `seed` from passages far from the question, and put
        anywhere among the others. Raises InputError for a blank question.
        """
        if not question.strip():
            raise InputError("The question is blank: write one.")
        if top < 1:
            raise ValueError(f"top is {top}: one passage or more is retrieved")
        asked = self._embedder.embed([question])[0]
        found = self._best(question, asked, top - noise)
        if noise:
            found = self._with_noise(asked, found, noise, random.Random(f"{seed} {question}"))
        passages = [self.index.passages[number] for number, _ in found]
        split = self._split([number for number, _ in found])
        scored = [_score(question, asked, *pair) for pair in zip(passages, split, strict=True)]
        marked = _mark_evidence(scored, max_evidence, evidence_ratio)
        return [
            Hit(passage, score, sentences)
            for passage, (_, score), sentences in zip(passages, found, marked, strict=True)
        ]

    def _best(self, question: str, asked: Vectors, top: int) -> list[tuple[int, float]]:
        """The best `top` passages, by the reranker if there is one."""
        if self.reranker is None:
            return self._distinct(asked, top)
        found = self._distinct(asked, max(top, CANDIDATES))
        scores = self.reranker(question, [self.index.passages[number] for number, _ in found])
        return [found[place] for place in np.argsort(-scores, kind="stable")[:top]]

    def _with_noise(
        self, asked: Vectors, found: list[tuple[int, float]], count: int, chance: random.Random
    ) -> list[tuple[int, float]]:
        """`found` with `count` passages that are far from the question, fewer if the index holds fewer."""
        total, texts = len(self.index.passages), {self._words(number) for number, _ in found}
        sample = []
        for number in chance.sample(range(total), min(total, NOISE_SAMPLE)):
            if (words := self._words(number)) not in texts:
                texts.add(words)
                sample.append(number)
        if not sample:
            return found
        far = ranked(sample, self.index.vectors_of(sample) @ asked)[len(sample) // 2 :]
        mixed = [*found, *chance.sample(far, min(count, len(far)))]
        chance.shuffle(mixed)
        return mixed

    def _distinct(self, asked: Vectors, top: int) -> list[tuple[int, float]]:
        """The best `top` passages whose texts differ; fewer if the index holds fewer."""
        total, wanted = len(self.index.passages), top
        while True:
            best: dict[str, tuple[int, float]] = {}
            nearest = self.index.search(asked, wanted)
            for number, score in nearest:
                best.setdefault(self._words(number), (number, score))
            if len(best) >= top or len(nearest) < wanted or wanted >= total:
                return list(best.values())[:top]
            wanted *= 4

    def _words(self, number: int) -> str:
        """What a passage says, however it is set."""
        return " ".join(self.index.passages[number].text.split())

    def _split(self, numbers: Sequence[int]) -> list[_SplitPassage]:
        """These passages with their sentences' vectors; those not remembered are embedded in one batch."""
        with self._lock:
            known = {number: self._remembered[number] for number in numbers if number in self._remembered}
        fresh = [number for number in numbers if number not in known]
        if fresh:
            split = self._embed_sentences([self.index.passages[number] for number in fresh])
            known |= zip(fresh, split, strict=True)
        with self._lock:
            for number in numbers:
                self._remembered[number] = known[number]
                self._remembered.move_to_end(number)
            while len(self._remembered) > PASSAGES_REMEMBERED:
                self._remembered.popitem(last=False)
        return [known[number] for number in numbers]

    def _embed_sentences(self, passages: Sequence[Passage]) -> list[_SplitPassage]:
        spans = [list(split_sentences(passage.text)) for passage in passages]
        texts = [
            embedded_sentence(passage, passage.text[start:end])
            for passage, own in zip(passages, spans, strict=True)
            for start, end in own
        ]
        vectors = self._embedder.embed(texts)
        split, first = [], 0
        for own in spans:
            split.append(_SplitPassage(tuple(own), vectors[first : first + len(own)]))
            first += len(own)
        return split


def embedded_sentence(passage: Passage, sentence: str) -> str:
    """What is embedded for a sentence: the document's title resolves its pronouns."""
    return f"{passage.title}: {sentence}"


def _score(question: str, asked: Vectors, passage: Passage, split: _SplitPassage) -> list[Sentence]:
    """A passage's sentences with their scores, none marked yet.

    The question's own words count beside its meaning, because vectors hardly reflect names and numbers.
    """
    wanted = content_words(question)
    sentences = []
    for (start, end), cosine in zip(split.spans, split.vectors @ asked, strict=True):
        text = passage.text[start:end]
        shared = len(wanted & content_words(text)) / max(1, len(wanted))
        sentences.append(Sentence(start, end, text, float(cosine) + SHARED_WORDS_WEIGHT * shared, 0))
    return sentences


def content_words(text: str) -> set[str]:
    """The words that say what a text is about, roughly stemmed; of a script without blanks, pairs of characters."""
    words = set[str]()
    for found in _WORD.finditer(text.lower()):
        word = found.group()
        if found["run"]:
            words.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        elif word not in _COMMON_WORDS:
            words.add(word[:_STEM_CHARS])
    return words


def _mark_evidence(
    passages: Sequence[Sequence[Sentence]], max_evidence: int, evidence_ratio: float
) -> list[tuple[Sentence, ...]]:
    """The sentences of each passage, the best of them all ranked 1, 2, ..., `max_evidence`."""
    good = [
        (i, j, sentence)
        for i, sentences in enumerate(passages)
        for j, sentence in enumerate(sentences)
        if sentence.score >= MIN_EVIDENCE_SCORE and not is_heading(sentence.text)
    ]
    # "Price: $40" and a clause of a contract answer, too, where no plain sentence does.
    candidates = [each for each in good if _is_plain(each[2].text)] or good
    candidates.sort(key=lambda candidate: -candidate[2].score)
    least = evidence_ratio * candidates[0][2].score if candidates else 0.0
    ranks: dict[tuple[int, int], int] = {}
    told: list[frozenset[str]] = []
    for i, j, sentence in candidates:
        if sentence.score < least or len(told) >= max_evidence:
            break
        words = frozenset(sentence.text.lower().split())
        if all(len(words & other) < SAME_WORDS * len(words | other) for other in told):
            told.append(words)
            ranks[i, j] = len(told)
    return [
        tuple(replace(sentence, evidence=ranks.get((i, j), 0)) for j, sentence in enumerate(sentences))
        for i, sentences in enumerate(passages)
    ]


def _is_plain(text: str) -> bool:
    return MIN_EVIDENCE_WORDS <= count_words(text) <= MAX_EVIDENCE_WORDS
