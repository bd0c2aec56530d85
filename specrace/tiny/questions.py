"""Questions about held-out sentences, asked the way a visitor would be answered: through the retriever.

Each case is four passages, one of which holds the sentence that the question was made from. A question is made from
the sentence's own words; its paraphrase leaves out the rarer half of them and names the title instead.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from specrace.retrieval.documents import Document
from specrace.retrieval.passages import split_passages
from specrace.tiny.quoting import Source

PASSAGES = 4
MIN_WORDS, MAX_WORDS = 9, 40
_WORD = re.compile(r"[A-Za-z][\w'-]+")
FORMS = ("What do the documents say about {}?", "What is said about {}?", "How about {}?", "Explain {}.", "Why {}?")


@dataclass(frozen=True)
class Case:
    """Four documents, the sentence that is asked for, and two ways to ask."""

    documents: tuple[Document, ...]
    sentence: str
    question: str
    paraphrase: str


def make_cases(sources: Sequence[Source], count: int, seed: int) -> list[Case]:
    """`count` cases, by a seeded draw from `sources` (prose: passages of two sentences or more)."""
    chance = random.Random(seed)
    prose = [source for source in sources if len(source.sentences) > 1]
    frequency = Counter(word.lower() for source in sources for text in source.sentences for word in _WORD.findall(text))
    cases: list[Case] = []
    while len(cases) < count:
        source = chance.choice(prose)
        fitting = [text for text in source.sentences if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
        words = _content_words(chance.choice(fitting), frequency) if fitting else []
        if len(words) < 4:
            continue
        sentence = next(text for text in fitting if words == _content_words(text, frequency))
        others = chance.sample([each for each in prose if each is not source], PASSAGES - 1)
        documents = [_document(number, each) for number, each in enumerate((source, *others))]
        chance.shuffle(documents)
        form = chance.choice(FORMS)
        in_order = [word for word in _WORD.findall(sentence) if word in words[: max(3, len(words) // 2)]]
        common = [word for word in _WORD.findall(sentence) if word in words[len(words) // 2 :]]
        cases.append(
            Case(
                tuple(documents),
                sentence,
                form.format(" ".join(in_order[:6])),
                form.format(" ".join(common[:6]) + " in " + source.title),
            )
        )
    return cases


def _content_words(sentence: str, frequency: Counter[str]) -> list[str]:
    """The sentence's longer words, the rarest first."""
    words = dict.fromkeys(word for word in _WORD.findall(sentence) if len(word) > 3)
    return sorted(words, key=lambda word: frequency[word.lower()])


def _document(number: int, source: Source) -> Document:
    """One passage as a document of its own, cut where the retriever would cut it."""
    document = Document(f"{number}.txt", source.title, " ".join(source.sentences))
    first = split_passages(document)[0]
    return Document(document.name, document.title, first.text)
