"""Samples that teach a chat model to answer from passages: quote the sentences that answer, cite them, and stop.

A sample is a few passages and several questions about them, so that what differs between the answers is the question.
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

# The share of samples with a question that their passages do not answer.
UNANSWERABLE = 0.75
MAX_PASSAGE_WORDS = 110
MIN_ANSWER_WORDS, MAX_ANSWER_WORDS = 6, 40
# Links, code, references to figures, and sentences of an author or a reader rather than on a subject.
_UNFIT = re.compile(
    r"https?:|www\.|>>>|::|--|[][{}<>=|]|\b(Listing|Figure|Table|Chapter|Section)s? \d|"
    r"\b(we|we’ve|we’ll|let’s|I|I’m|you’ll)\b",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"(It|They|This|These|Those|That|Its|Their|He|She|His|Her|Such|There|Here|Another|Both|The latter|Similarly|Also|"
    r"Then|Thus|Therefore|Hence|Instead|Other|Others|Some|One)\b"
)
_CONNECTIVE = re.compile(
    r"(However|But|And|For example|For instance|In addition|Moreover|Furthermore|In fact|Indeed|Of course|Finally|"
    r"First|Second|Third|In other words|As a result|Additionally|On the other hand|In general|So|Also|Thus|Therefore|"
    r"Similarly|Instead|Note that|Still|Nevertheless|In particular),? (?=\w)"
)
_CITED_WORK = re.compile(r"\s*\((?:see |e\.g\., )?[^()]*\b(?:1[5-9]|20)\d\d[a-z]?(?:, \d+|: \d+)?\)|\s*\(see [^()]*\)")

# A passage's index and a sentence's in it.
Place = tuple[int, int]


@dataclass(frozen=True)
class Asked:
    """A question about a sample's passages, the sentences that are marked as evidence, best first, and the answer."""

    question: str
    evidence: tuple[Place, ...]
    answer: str


@dataclass(frozen=True)
class Grounded:
    """Passages, with their texts as a prompt has them, and questions about them."""

    passages: tuple[Source, ...]
    texts: tuple[str, ...]
    asked: tuple[Asked, ...]

    def hits(self, asked: Asked) -> list[Hit]:
        """What retrieval would return for the question."""
        ranks = {place: rank for rank, place in enumerate(asked.evidence, 1)}
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
    """The training text's passages; neighbours of one title are joined up to the length of a retrieved passage."""
    joined: list[Source] = []
    for source in read_sources(path):
        last = joined[-1] if joined else None
        words = sum(map(count_words, (*(last.sentences if last else ()), *source.sentences)))
        if last and last.title == source.title and words <= MAX_PASSAGE_WORDS:
            joined[-1] = Source(source.title, last.sentences + source.sentences)
        else:
            joined.append(source)
    return joined


class GroundedTask:
    """Random samples from `sources`."""

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

    def sample(self, count: int) -> Grounded:
        """A sample with at most `count` questions, of which at least three are answered and at most one is not."""
        found: list[Asked] = []
        while len(found) < 3:
            passages = self._passages()
            tries = [number for number in range(len(passages)) for _ in range(3 * count)]
            made = (self._about(passages, number) for number in tries)
            # One question for a sentence.
            found = list({each.answer[:40]: each for each in made if each}.values())
        self.random.shuffle(found)
        found = found[: count - 1]
        if self.random.random() < UNANSWERABLE:
            found.insert(self.random.randrange(len(found)), self._unanswerable(passages))
        return Grounded(tuple(passages), tuple(map(self._text, passages)), tuple(found))

    def _passages(self) -> list[Source]:
        """Mostly two: of one title, of two, or prose beside a fact."""
        passages = [self._prose()]
        wanted = self.random.choices((1, 2, 3), (5, 85, 10))[0]
        while len(passages) < wanted:
            kind = self.random.choices(("family", "fact", "any"), (40, 15, 45))[0]
            if kind == "family":
                passages.append(self.random.choice(self.by_title[passages[0].title]))
            else:
                passages.append(self.random.choice(self.facts) if kind == "fact" and self.facts else self._prose())
            passages = list(dict.fromkeys(passages))
        self.random.shuffle(passages)
        return [self._cut(source) for source in passages]

    def _prose(self) -> Source:
        return self.random.choices(self.prose, cum_weights=self.weights)[0]

    def _cut(self, source: Source) -> Source:
        """Whole sentences of up to 110 words, sometimes fewer, from a random one on."""
        most = self.random.choice((60, 85, MAX_PASSAGE_WORDS, MAX_PASSAGE_WORDS))
        spare = sum(map(count_words, source.sentences)) > most and len(source.sentences) > 4
        start = self.random.randrange(len(source.sentences) - 3) if spare and self.random.random() < 0.5 else 0
        kept: list[str] = []
        for sentence in source.sentences[start:]:
            if kept and sum(map(count_words, (*kept, sentence))) > most:
                break
            kept.append(" ".join(sentence.split()[:MAX_PASSAGE_WORDS]))
        return Source(source.title, tuple(kept))

    def _text(self, source: Source) -> str:
        """The passage's text, sometimes under its heading, as the first passage of a Markdown document is."""
        heading = f"# {source.title}  " if self.random.random() < 0.35 else ""
        return heading + " ".join(source.sentences)

    def _about(self, passages: Sequence[Source], number: int) -> Asked | None:
        """A question that a sentence of passage `number` answers better than any other sentence."""
        source = passages[number]
        if _is_fact(source):
            return self._fact(passages, number)
        place = self.random.randrange(len(source.sentences))
        sentence = _polish(source.sentences[place])
        if not _fits(source.sentences[place]) or _BACK.match(sentence):
            return None
        made = questions(sentence, self.random)
        wanted = content_words(made[0]) if made else set()
        best = len(wanted & content_words(sentence))
        others = [text for each in passages for text in each.sentences if text != source.sentences[place]]
        if not best or any(len(wanted & content_words(text)) >= best for text in others):
            return None
        evidence = self._evidence(passages, (number, place), wanted)
        quotes = self._quotes(passages, evidence, (number, place), wanted)
        return Asked(self._rough(reword(made[0], self.random)), evidence, _join(passages, quotes))

    def _evidence(self, passages: Sequence[Source], answer: Place | None, wanted: set[str]) -> tuple[Place, ...]:
        """Up to three sentences as retrieval would mark them: those that share most words with the question.

        `answer` is mostly the first.
        """
        shared = {
            (number, index): len(wanted & content_words(text)) + self.random.random()
            for number, source in enumerate(passages)
            for index, text in enumerate(source.sentences)
            if (number, index) != answer and 4 <= len(text.split()) <= 60
        }
        others = sorted(shared, key=lambda place: -shared[place])[: self.random.choices((0, 1, 2), (10, 20, 70))[0]]
        if answer is not None:
            others.insert(self.random.choices((0, 1, 2), (75, 17, 8))[0], answer)
        return tuple(others)

    def _quotes(
        self, passages: Sequence[Source], evidence: Sequence[Place], answer: Place, wanted: set[str]
    ) -> list[Place]:
        """`answer`, and often the sentences that continue it, or another piece of evidence."""
        more = self.random.choices((0, 1, 2), (28, 50, 22))[0]
        quotes = [answer]
        sentences = passages[answer[0]].sentences
        subject = content_words(sentences[answer[1]])
        for index in range(answer[1] + 1, min(answer[1] + 1 + more, len(sentences))):
            text = sentences[index]
            linked = _BACK.match(text) or _CONNECTIVE.match(text) or len(content_words(text) & subject) >= 2
            if not (_fits(text) and linked):
                break
            quotes.append((answer[0], index))
        for number, index in evidence:
            text = passages[number].sentences[index]
            about = len(wanted & content_words(text)) >= 2 and _fits(text) and not _BACK.match(_polish(text))
            if about and len(quotes) <= more and (number, index) not in quotes:
                quotes.append((number, index))
        return quotes

    def _fact(self, passages: Sequence[Source], number: int) -> Asked:
        source = passages[number]
        place, field = source.title.split(": ", 1)
        value = source.sentences[0].rstrip(". ")
        field = field if field[:2].isupper() else field[0].lower() + field[1:]
        question = self.random.choice(
            ("What is the {f} of {p}?", "What do the documents say about the {f} of {p}?", "{p}: what is its {f}?",
             "What is known about the {f} in {p}?", "Can you give me the {f} of {p}?", "What is {p}'s {f}?")
        ).format(f=field, p=place)  # fmt: skip
        opening = self.random.choice(("The {f} of {p} is ", "For {p}, the {f} is ", "{p}'s {f} is "))
        statement = f"{opening.format(f=field, p=place)}{value}."
        evidence = self._evidence(passages, (number, 0), content_words(question))
        return Asked(question[0].upper() + question[1:], evidence, cite(statement, number + 1))

    def _unanswerable(self, passages: Sequence[Source]) -> Asked:
        """A question about another title, of which the passages hold no sentence."""
        held = content_words(" ".join(text for source in passages for text in source.sentences))
        while True:
            other = self._prose()
            asked = self._about([other], 0) if other.title not in {source.title for source in passages} else None
            if self.random.random() < 0.15 and self.facts:
                asked = self._fact([self.random.choice(self.facts)], 0)
            if asked and (wanted := content_words(asked.question)) and len(wanted & held) <= len(wanted) / 3:
                marked = self._evidence(passages, None, wanted) if self.random.random() < 0.3 else ()
                return Asked(asked.question, marked, NO_EVIDENCE)

    def _rough(self, question: str) -> str:
        """Now and then as people type it."""
        draw = self.random.random()
        return question.lower() if draw < 0.04 else question.rstrip("?.") if draw < 0.07 else question


def _join(passages: Sequence[Source], quotes: Sequence[Place]) -> str:
    """The sentences with their citations; one that does not follow its neighbour stands without its connective."""
    texts = []
    for before, (number, index) in zip((None, *quotes), quotes, strict=False):
        text = passages[number].sentences[index]
        texts.append(cite(_plain(text) if before == (number, index - 1) else _polish(text), number + 1))
    return " ".join(texts)


def cite(sentence: str, number: int) -> str:
    """The sentence with the passage's number before its last mark.

    >>> cite("Bread rises.", 2)
    'Bread rises [2].'
    """
    body = sentence.rstrip()
    return f"{body[:-1]} [{number}]{body[-1]}" if body[-1] in ".!?" else f"{body} [{number}]."


def _is_fact(source: Source) -> bool:
    text = source.sentences[0]
    return len(source.sentences) == 1 and ": " in source.title and len(text) < 90 and not re.search(r"[:;]", text)


def _plainness(source: Source) -> float:
    """How much a passage is preferred: plain prose to what is full of code, names and numbers."""
    words = " ".join(source.sentences).split()
    odd = sum(re.fullmatch(r"[\"'“(]*[A-Za-z]?[a-z’'-]+[.,;:?!)\"'”]*", word) is None for word in words)
    return 0.02 + max(0.0, 1 - 10 * odd / len(words)) * len(source.sentences)


def _fits(sentence: str) -> bool:
    words = len(sentence.split())
    whole = sentence[:1].isupper() and sentence[-1] == "." and sentence.count("(") == sentence.count(")")
    return whole and MIN_ANSWER_WORDS <= words <= MAX_ANSWER_WORDS and not _UNFIT.search(sentence)


def _polish(sentence: str) -> str:
    """Without an opening that leans on the sentence before, and without the works it cites."""
    text = _CONNECTIVE.sub("", sentence, count=1) if _CONNECTIVE.match(sentence) else sentence
    return _plain(text[0].upper() + text[1:])


def _plain(sentence: str) -> str:
    return _CITED_WORK.sub("", sentence)
