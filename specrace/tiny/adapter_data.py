"""Samples that teach a chat model to answer from passages: quote the sentences that answer, cite them, and stop.

A sample has a few passages and several questions about them, so its answers differ only because the questions do.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from specrace.core.errors import InputError
from specrace.retrieval.passages import Passage, count_words
from specrace.retrieval.prompt import NO_EVIDENCE
from specrace.retrieval.retriever import Hit, Sentence, content_words
from specrace.tiny.adapter_questions import questions, reword
from specrace.tiny.quoting import Source, read_sources

# The share of samples with a question that the passages do not answer.
UNANSWERABLE = 0.75
# The longest passages of the app (`split_passages`).
MAX_PASSAGE_WORDS = 110
# The length of a sentence that may be quoted.
MIN_ANSWER_WORDS, MAX_ANSWER_WORDS = 6, 40
# Sentences that cannot be answers: with links, code, references to figures, or an author who says "I" or "we".
_UNFIT = re.compile(
    r"https?:|www\.|>>>|::|--|[][{}<>=|]|\b(Listing|Figure|Table|Chapter|Section)s? \d|"
    r"\b(we|we’ve|we’ll|let’s|I|I’m|you’ll)\b",
    re.IGNORECASE,
)
# The beginning of a sentence that refers to the sentence before.
_REFERS_BACK = re.compile(
    r"(It|They|This|These|Those|That|Its|Their|He|She|His|Her|Such|There|Here|Another|Both|The latter|Similarly|Also|"
    r"Then|Thus|Therefore|Hence|Instead|Other|Others|Some|One)\b"
)
# A beginning that can be removed from a sentence.
_CONNECTIVE = re.compile(
    r"(However|But|And|For example|For instance|In addition|Moreover|Furthermore|In fact|Indeed|Of course|Finally|"
    r"First|Second|Third|In other words|As a result|Additionally|On the other hand|In general|So|Also|Thus|Therefore|"
    r"Similarly|Instead|Note that|Still|Nevertheless|In particular),? (?=\w)"
)
# A reference such as "(see Smith 1999, 12)".
_CITED_WORK = re.compile(r"\s*\((?:see |e\.g\., )?[^()]*\b(?:1[5-9]|20)\d\d[a-z]?(?:, \d+|: \d+)?\)|\s*\(see [^()]*\)")

# (the index of a passage, the index of a sentence in the passage)
SentenceIndex = tuple[int, int]


@dataclass(frozen=True)
class GroundedQuestion:
    """A question about a sample's passages, the sentences marked as evidence, best first, and the answer.

    If the passages do not answer the question, the answer is the sentence `NO_EVIDENCE`.
    """

    question: str
    evidence: tuple[SentenceIndex, ...]
    answer: str


@dataclass(frozen=True)
class GroundedSample:
    """A sample: passages, their texts in the prompt, and questions about them."""

    passages: tuple[Source, ...]
    texts: tuple[str, ...]
    questions: tuple[GroundedQuestion, ...]

    def hits(self, question: GroundedQuestion) -> list[Hit]:
        """What retrieval would return for a question."""
        ranks = {index: rank for rank, index in enumerate(question.evidence, 1)}
        # The prompt needs only titles, texts, and sentences with their ranks; the other fields have no meaning here.
        return [
            Hit(
                Passage("", source.title, 0, len(text), text),
                0.0,
                tuple(
                    Sentence(0, 0, sentence, 0.0, ranks.get((number, index), 0))
                    for index, sentence in enumerate(source.sentences)
                ),
            )
            for number, (source, text) in enumerate(zip(self.passages, self.texts, strict=True))
        ]


def read_passages(path: Path) -> list[Source]:
    """The passages of the training text; consecutive ones with the same title are joined up to MAX_PASSAGE_WORDS."""
    passages: list[Source] = []
    for source in read_sources(path):
        if passages and passages[-1].title == source.title:
            joined = Source(source.title, passages[-1].sentences + source.sentences)
            if sum(map(count_words, joined.sentences)) <= MAX_PASSAGE_WORDS:
                passages[-1] = joined
                continue
        passages.append(source)
    return passages


class GroundedTask:
    """Draws random samples from `sources`. Raises InputError if none has three plain sentences.

    No record says how the shares and weights of its draws were chosen.
    """

    def __init__(self, sources: Sequence[Source], seed: int) -> None:
        self.random = random.Random(seed)
        self.facts = [source for source in sources if _is_fact(source)]
        self.prose = [source for source in sources if sum(map(_fits, source.sentences)) >= 3]
        if not self.prose:
            raise InputError(
                f"The training text has {len(sources)} passages, none with three plain sentences; give more text, of "
                "enough titles that some are held out."
            )
        self.by_title: defaultdict[str, list[Source]] = defaultdict(list)
        for source in self.prose:
            self.by_title[source.title].append(source)
        self.weights = list(accumulate(map(_plainness, self.prose)))

    def sample(self, count: int) -> GroundedSample:
        """A sample with at most `count` questions, of which at least three have an answer, and at most one has none."""
        chosen: list[GroundedQuestion] = []
        while len(chosen) < 3:
            passages = self._passages()
            # Several attempts for each question, because most sentences yield none.
            attempts = [number for number in range(len(passages)) for _ in range(3 * count)]
            candidates = (self._question_about(passages, number) for number in attempts)
            # Keep one question per answering sentence, which the first 40 characters of the answer identify.
            chosen = list({question.answer[:40]: question for question in candidates if question}.values())
        self.random.shuffle(chosen)
        # Room for a question without an answer.
        chosen = chosen[: count - 1]
        if self.random.random() < UNANSWERABLE:
            chosen.insert(self.random.randrange(len(chosen)), self._unanswerable(passages))
        return GroundedSample(tuple(passages), tuple(map(self._text, passages)), tuple(chosen))

    def _passages(self) -> list[Source]:
        """One to three random passages, mostly two: from one title, from several titles, or prose and facts."""
        passages = [self._prose()]
        num_passages = self.random.choices((1, 2, 3), (5, 85, 10))[0]
        while len(passages) < num_passages:
            kind = self.random.choices(("same title", "fact", "any"), (40, 15, 45))[0]
            if kind == "same title":
                passages.append(self.random.choice(self.by_title[passages[0].title]))
            else:
                passages.append(self.random.choice(self.facts) if kind == "fact" and self.facts else self._prose())
            passages = list(dict.fromkeys(passages))
        self.random.shuffle(passages)
        return [self._cut(source) for source in passages]

    def _prose(self) -> Source:
        return self.random.choices(self.prose, cum_weights=self.weights)[0]

    def _cut(self, source: Source) -> Source:
        """The source's sentences up to a random limit of 60, 85 or 110 words.

        Half of the sources that are too long begin at a random sentence.
        """
        max_words = self.random.choice((60, 85, MAX_PASSAGE_WORDS, MAX_PASSAGE_WORDS))
        is_long = sum(map(count_words, source.sentences)) > max_words and len(source.sentences) > 4
        start = self.random.randrange(len(source.sentences) - 3) if is_long and self.random.random() < 0.5 else 0
        sentences: list[str] = []
        for sentence in source.sentences[start:]:
            if sentences and sum(map(count_words, (*sentences, sentence))) > max_words:
                break
            sentences.append(" ".join(sentence.split()[:MAX_PASSAGE_WORDS]))
        return Source(source.title, tuple(sentences))

    def _text(self, source: Source) -> str:
        """The passage's text, sometimes under a heading, like the first passage of a Markdown document."""
        heading = f"# {source.title}  " if self.random.random() < 0.35 else ""
        return heading + " ".join(source.sentences)

    def _question_about(self, passages: Sequence[Source], number: int) -> GroundedQuestion | None:
        """A question that a random sentence of passage `number` answers best; None if the sentence yields none."""
        source = passages[number]
        if _is_fact(source):
            return self._question_about_fact(passages, number)
        index = self.random.randrange(len(source.sentences))
        sentence = _polish(source.sentences[index])
        if not _fits(source.sentences[index]) or _REFERS_BACK.match(sentence):
            return None
        candidates = questions(sentence, self.random)
        query = content_words(candidates[0]) if candidates else set()
        num_shared = len(query & content_words(sentence))
        # No other sentence may answer the question as well.
        others = [text for passage in passages for text in passage.sentences if text != source.sentences[index]]
        if not num_shared or any(len(query & content_words(text)) >= num_shared for text in others):
            return None
        evidence = self._evidence(passages, (number, index), query)
        quotes = self._quotes(passages, evidence, (number, index), query)
        return GroundedQuestion(self._roughen(reword(candidates[0], self.random)), evidence, _join(passages, quotes))

    def _evidence(
        self, passages: Sequence[Source], answer: SentenceIndex | None, query: set[str]
    ) -> tuple[SentenceIndex, ...]:
        """Up to three sentences that retrieval might mark: `answer`, if given, and up to two others.

        The others are those that share the most words with the question. `answer` is mostly the first.
        """
        # The random part breaks ties.
        num_shared = {
            (number, index): len(query & content_words(text)) + self.random.random()
            for number, source in enumerate(passages)
            for index, text in enumerate(source.sentences)
            if (number, index) != answer and 4 <= len(text.split()) <= 60
        }
        num_others = self.random.choices((0, 1, 2), (10, 20, 70))[0]
        others = sorted(num_shared, key=lambda index: -num_shared[index])[:num_others]
        if answer is not None:
            others.insert(self.random.choices((0, 1, 2), (75, 17, 8))[0], answer)
        return tuple(others)

    def _quotes(
        self, passages: Sequence[Source], evidence: Sequence[SentenceIndex], answer: SentenceIndex, query: set[str]
    ) -> list[SentenceIndex]:
        """The sentences to quote: `answer`, often with the sentences that continue it or with other evidence."""
        max_more = self.random.choices((0, 1, 2), (28, 50, 22))[0]
        quotes = [answer]
        sentences = passages[answer[0]].sentences
        subject = content_words(sentences[answer[1]])
        for index in range(answer[1] + 1, min(answer[1] + 1 + max_more, len(sentences))):
            text = sentences[index]
            linked = _REFERS_BACK.match(text) or _CONNECTIVE.match(text) or len(content_words(text) & subject) >= 2
            if not (_fits(text) and linked):
                break
            quotes.append((answer[0], index))
        for number, index in evidence:
            text = passages[number].sentences[index]
            is_related = len(query & content_words(text)) >= 2 and _fits(text) and not _REFERS_BACK.match(_polish(text))
            if is_related and len(quotes) <= max_more and (number, index) not in quotes:
                quotes.append((number, index))
        return quotes

    def _question_about_fact(self, passages: Sequence[Source], number: int) -> GroundedQuestion:
        """A question about passage `number`, a fact titled "subject: field"."""
        source = passages[number]
        subject, field = source.title.split(": ", 1)
        value = source.sentences[0].rstrip(". ")
        # An abbreviation keeps its capitals.
        field = field if field[:2].isupper() else field[0].lower() + field[1:]
        question = self.random.choice(
            ("What is the {f} of {p}?", "What do the documents say about the {f} of {p}?", "{p}: what is its {f}?",
             "What is known about the {f} in {p}?", "Can you give me the {f} of {p}?", "What is {p}'s {f}?")
        ).format(f=field, p=subject)  # fmt: skip
        opening = self.random.choice(("The {f} of {p} is ", "For {p}, the {f} is ", "{p}'s {f} is "))
        statement = f"{opening.format(f=field, p=subject)}{value}."
        evidence = self._evidence(passages, (number, 0), content_words(question))
        return GroundedQuestion(question[0].upper() + question[1:], evidence, cite(statement, number + 1))

    def _unanswerable(self, passages: Sequence[Source]) -> GroundedQuestion:
        """A question about another title, which the passages do not answer."""
        passage_words = content_words(" ".join(text for source in passages for text in source.sentences))
        while True:
            other = self._prose()
            is_new = other.title not in {source.title for source in passages}
            candidate = self._question_about([other], 0) if is_new else None
            if self.random.random() < 0.15 and self.facts:
                candidate = self._question_about_fact([self.random.choice(self.facts)], 0)
            if candidate is None:
                continue
            query = content_words(candidate.question)
            # If the passages had more of its words, they might answer it.
            if query and len(query & passage_words) <= len(query) / 3:
                marked = self._evidence(passages, None, query) if self.random.random() < 0.3 else ()
                return GroundedQuestion(candidate.question, marked, NO_EVIDENCE)

    def _roughen(self, question: str) -> str:
        """The question as people type it: rarely in lower case, or without its final punctuation mark."""
        draw = self.random.random()
        if draw < 0.04:
            return question.lower()
        return question.rstrip("?.") if draw < 0.07 else question


def _join(passages: Sequence[Source], quotes: Sequence[SentenceIndex]) -> str:
    """The quoted sentences with their citations.

    A sentence loses its connective unless it directly follows the sentence quoted before it.
    """
    texts = []
    last: SentenceIndex | None = None
    for number, index in quotes:
        text = passages[number].sentences[index]
        text = _plain(text) if last == (number, index - 1) else _polish(text)
        texts.append(cite(text, number + 1))
        last = (number, index)
    return " ".join(texts)


def cite(sentence: str, number: int) -> str:
    """The sentence with the passage's number before its final punctuation mark.

    >>> cite("Bread rises.", 2)
    'Bread rises [2].'
    """
    body = sentence.rstrip()
    return f"{body[:-1]} [{number}]{body[-1]}" if body[-1] in ".!?" else f"{body} [{number}]."


def _is_fact(source: Source) -> bool:
    """Whether a source is one short statement with a title "subject: field"."""
    text = source.sentences[0]
    return len(source.sentences) == 1 and ": " in source.title and len(text) < 90 and not re.search(r"[:;]", text)


def _plainness(source: Source) -> float:
    """The weight of a passage in a random draw: plain prose is preferred to text full of code, names and numbers.

    A passage gets the minimum weight if a tenth of its words or more are not plain words.
    """
    words = " ".join(source.sentences).split()
    # A plain word has letters in lower case, perhaps a capital before them, and punctuation around them.
    num_odd = sum(re.fullmatch(r"[\"'“(]*[A-Za-z]?[a-z’'-]+[.,;:?!)\"'”]*", word) is None for word in words)
    return 0.02 + max(0.0, 1 - 10 * num_odd / len(words)) * len(source.sentences)


def _fits(sentence: str) -> bool:
    """Whether a sentence can be an answer: complete, of suitable length, and not `_UNFIT`."""
    num_words = len(sentence.split())
    is_whole = sentence[:1].isupper() and sentence[-1] == "." and sentence.count("(") == sentence.count(")")
    return is_whole and MIN_ANSWER_WORDS <= num_words <= MAX_ANSWER_WORDS and not _UNFIT.search(sentence)


def _polish(sentence: str) -> str:
    """The sentence without a connective at its beginning and without references to cited works."""
    text = _CONNECTIVE.sub("", sentence, count=1) if _CONNECTIVE.match(sentence) else sentence
    return _plain(text[0].upper() + text[1:])


def _plain(sentence: str) -> str:
    """The sentence without references to cited works."""
    return _CITED_WORK.sub("", sentence)
