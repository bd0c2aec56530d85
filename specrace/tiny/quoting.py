"""The task that the bundled model is trained on: answer by quoting the sentences that a retriever marked.

A sample is one to five passages, one to three of their sentences marked as evidence, a question, and the answer: an
opening that fits the question's first words, each marked sentence behind its marker with its citation, and a joint
between two of them. Passages, questions and distractors are drawn anew each time, so no two samples are alike.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specrace.core.errors import InputError
from specrace.retrieval.documents import read_documents
from specrace.retrieval.passages import split_passages
from specrace.retrieval.sentences import split_sentences

NO_ANSWER = " The documents do not answer this question."
JOINTS = (" The documents add:", " They also say:")
# The opening is a function of the question's first words, so the model can learn it and greedy decoding repeats it.
OPENINGS = (
    (("how many", "how much", "how long", "how far", "how old", "how often"), " The documents give this figure:"),
    (("how",), " The documents describe it this way:"),
    (("who", "whose"), " The documents name who it was:"),
    (("when",), " On the time, the documents say:"),
    (("where",), " On the place, the documents say:"),
    (("why",), " The documents give this reason:"),
    (("which",), " The documents point to this:"),
    (("what is", "what are", "what was", "what were"), " According to the documents:"),
    (("what",), " The documents say this:"),
    (("is", "are", "was", "were", "does", "do", "did", "can", "could", "should", "will", "has", "have"),
     " The documents put it like this:"),
    (("explain", "describe"), " Here is how the documents explain it:"),
    (("tell", "give", "show", "list", "name"), " Here is what the documents tell:"),
)  # fmt: skip
OTHER_OPENING = " From the documents:"
MAX_SENTENCE_WORDS, MIN_SENTENCE_WORDS = 60, 4


@dataclass(frozen=True)
class Source:
    """A passage to draw from: its title and its sentences."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """Documents in the chat template's form, the question, and the answer with its markers."""

    documents: list[dict[str, Any]]
    question: str
    answer: str


def opening(question: str) -> str:
    """The phrase that an answer to `question` begins with."""
    words = question.lower()
    for starts, phrase in OPENINGS:
        if any(re.match(rf"{start}\b", words) for start in starts):
            return phrase
    return OTHER_OPENING


def read_sources(path: Path) -> list[Source]:
    """Passages of a `.jsonl[.gz]` file of {"title", "text"} lines, or of a folder of text files."""
    if path.is_dir():
        documents = read_documents([path])
        pairs = [(piece.title, piece.text) for document in documents for piece in split_passages(document)]
    else:
        pairs = [(row["title"], row["text"]) for row in _rows(path)]
    sources = []
    for title, text in pairs:
        # "[3]" is the citation of passage 3 and one token; in a text of its own it becomes "(3)".
        text = re.sub(r"\[(\d)\]", r"(\1)", re.sub(r"\s+", " ", text)).strip()
        sentences = tuple(text[start:end] for start, end in split_sentences(text))
        if sentences:
            sources.append(Source(title[:90], sentences))
    return sources


def _rows(path: Path) -> list[dict[str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as training text ({error}); give a .jsonl[.gz] or a folder."
        ) from error


class QuotingTask:
    """An endless supply of samples from `sources`, by a seeded generator."""

    def __init__(self, sources: Sequence[Source], seed: int) -> None:
        if len(sources) < 8:
            raise InputError(f"The training text has {len(sources)} passages; give at least 8.")
        self.random = random.Random(seed)
        prose = [source for source in sources if len(source.sentences) > 1]
        self.pools = [pool for pool in (prose, [source for source in sources if len(source.sentences) == 1]) if pool]
        self.by_title: dict[str, list[Source]] = {}
        for source in sources:
            self.by_title.setdefault(source.title.split(":")[0], []).append(source)

    def sample(self, max_words: int) -> Sample:
        """One sample whose passages have about `max_words` words at most."""
        passages = self._passages(max_words)
        usable = [
            (number, index)
            for number, passage in enumerate(passages)
            for index, sentence in enumerate(passage.sentences)
            if MIN_SENTENCE_WORDS <= len(sentence.split()) <= MAX_SENTENCE_WORDS
        ]
        wanted = self.random.choices((0, 1, 2, 3), (6, 34, 34, 26))[0]
        chosen = self.random.sample(usable, min(wanted, len(usable)))
        marks = {place: rank for rank, place in enumerate(chosen, 1)}
        documents = [
            {
                "title": passage.title,
                "sentences": [
                    {"text": sentence, "evidence": marks.get((number, index), 0)}
                    for index, sentence in enumerate(passage.sentences)
                ],
            }
            for number, passage in enumerate(passages)
        ]
        about = [passages[number].sentences[index] for number, index in chosen]
        titles = [passages[number].title for number, _ in chosen] or [passages[0].title]
        question = self._question(about or list(passages[0].sentences), titles[0])
        quotes = [(sentence, number + 1) for sentence, (number, _) in zip(about, chosen, strict=True)]
        return Sample(documents, question, answer(question, quotes))

    def _passages(self, max_words: int) -> list[Source]:
        number = self.random.randint(1, 5)
        first = self._source()
        family = self.by_title[first.title.split(":")[0]] if self.random.random() < 0.5 else None
        passages, words = [], 0
        for position in range(number):
            passage = first if not position else self.random.choice(family) if family else self._source()
            passage = self._roughen(self._cut(passage, max_words - words))
            passages.append(passage)
            words += sum(len(sentence.split()) for sentence in passage.sentences)
            if words > max_words * 0.8:
                break
        self.random.shuffle(passages)
        return passages

    def _source(self) -> Source:
        pool = self.pools[0] if self.random.random() < 0.7 else self.pools[-1]
        return self.random.choice(pool)

    def _cut(self, source: Source, max_words: int) -> Source:
        """As many whole sentences of `source`, from a random one on, as fit; at least one, cut short if it must be."""
        start = self.random.randrange(len(source.sentences)) if self.random.random() < 0.4 else 0
        kept: list[str] = []
        words = 0
        for sentence in source.sentences[start:]:
            words += len(sentence.split())
            if words > min(max_words, 130) and kept:
                break
            kept.append(" ".join(sentence.split()[:80]))
        return Source(source.title, tuple(kept))

    def _roughen(self, source: Source) -> Source:
        """Sometimes put words that no vocabulary knows, or another sentence's words, into the sentences."""
        if self.random.random() > 0.4:
            return source
        subject = " ".join(self.random.choice(source.sentences).split()[: self.random.randint(1, 6)])
        repeats = self.random.choice((0.0, 0.0, 0.7))
        sentences = []
        for sentence in source.sentences:
            words = sentence.split()
            if self.random.random() < repeats:
                # A passage on one subject begins many sentences alike: where the copy could go astray.
                words = [*subject.split(), words[0].lower(), *words[1:]]
            for _ in range(self.random.randint(0, 3)):
                odd = self._own_words() if self.random.random() < 0.35 else self._odd_word()
                words[self.random.randrange(len(words))] = odd
            sentences.append(" ".join(words))
        return Source(source.title, tuple(sentences))

    def _own_words(self) -> str:
        """Words of the phrases that answers are joined with: in a quote they go on as the sentence does."""
        phrase = self.random.choice((*JOINTS, *(phrase for _, phrase in OPENINGS))).split()
        start = self.random.randrange(len(phrase))
        return " ".join(phrase[start : start + self.random.randint(1, 3)]).strip(":")

    def _odd_word(self) -> str:
        pick = self.random.random()
        if pick < 0.3:
            return str(self.random.randrange(10 ** self.random.randint(1, 6)))
        if pick < 0.45:
            return f"{self.random.randrange(1000)}.{self.random.randrange(100)}"
        if pick < 0.8:
            length = self.random.randint(3, 9)
            word = "".join(self.random.choices("aeiou" + string.ascii_lowercase, k=length))
            return word.capitalize() if self.random.random() < 0.6 else word
        if pick < 0.9:
            return "".join(self.random.choices("éüñçøßåłšžαβγδжид中文", k=self.random.randint(2, 5)))
        return "_".join("".join(self.random.choices(string.ascii_letters, k=4)) for _ in range(2)) + "()"

    def _question(self, sentences: list[str], title: str) -> str:
        """A question about the first sentence: a piece of it, or its title, behind an interrogative."""
        words = [word.strip("\"'()[]:;,.") for word in self.random.choice(sentences[:2]).split()]
        words = [word for word in words if word] or ["this"]
        length = self.random.choice((1, 2, 3, 3, 4, 5, 8, len(words)))
        start = self.random.randrange(max(1, len(words) - length + 1))
        piece = " ".join(words[start : start + length])
        if length <= 5 and start == 0:
            piece = piece[0].lower() + piece[1:]
        if ": " in title and self.random.random() < 0.5:
            place, field = title.split(": ", 1)
            piece = f"the {field.lower()} of {place}"
        elif self.random.random() < 0.2:
            piece = title
        if self.random.random() < 0.4:
            # Any first words before anything: the opening must follow them alone, not the shape of a template.
            starts = self.random.choice(OPENINGS)[0]
            return f"{self.random.choice(starts).capitalize()} {piece}{self.random.choice('???.')}"
        return self.random.choice(QUESTIONS).format(piece)


QUESTIONS = (
    "What is {}?", "What is {}?", "What are {}?", "What was {}?", "What does {} mean?", "What happens with {}?",
    "What do the documents say about {}?", "What makes {}?", "What about {}?", "How does {} work?", "How is {} done?",
    "How do {} help?", "How can {} be explained?", "How many {} are there?", "How much {} is there?",
    "How long does {} take?", "How far is {}?", "Who was {}?", "Who made {}?", "Who decides on {}?", "Whose is {}?",
    "When did {} begin?", "When was {}?", "When is {} used?", "Where is {}?", "Where does {} come from?",
    "Where do {} live?", "Why is {} so?", "Why does {} matter?", "Why do {}?", "Why {}?", "Which {} is it?",
    "Which of them is {}?", "Is {} true?", "Is it true that {}?", "Are {} the same?", "Does {} change anything?",
    "Do {} need it?", "Did {} happen?", "Can {} be wrong?", "Was {} early?", "Has {} changed?", "Explain {}.",
    "Explain how {} works.", "Describe {}.", "Tell me about {}.", "Give me an overview of {}.", "Name {}.", "{}?", "{}",
)  # fmt: skip


def answer(question: str, quotes: Sequence[tuple[str, int]]) -> str:
    """The answer's text with its markers: `quotes` are (sentence, number of its passage) in the order of evidence."""
    if not quotes:
        return NO_ANSWER
    parts = [opening(question)]
    for rank, (sentence, passage) in enumerate(quotes, 1):
        if rank > 1:
            parts.append(JOINTS[rank - 2])
        parts.append(f"<|e{rank}|> {sentence} [{passage}]")
    return "".join(parts)
