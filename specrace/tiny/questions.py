"""Makes questions about held-out sentences, for which the retriever marks the evidence, as on the page.

Each case has four passages, and two questions about a sentence in one of them. One question uses the rarer half of the
sentence's words; its paraphrase uses the more common half and the title.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specrace.retrieval.documents import Document
from specrace.retrieval.passages import split_passages
from specrace.tiny.quoting import Source

PASSAGES = 4
MIN_WORDS, MAX_WORDS = 9, 40
_WORD = re.compile(r"[A-Za-z][\w'-]+")
# Questions about some words of a sentence.
FORMS = ("What do the documents say about {}?", "What is said about {}?", "How about {}?", "Explain {}.", "Why {}?")


@dataclass(frozen=True)
class Case:
    """Four documents, the sentence to quote, and two questions about this sentence."""

    documents: tuple[Document, ...]
    sentence: str
    question: str
    paraphrase: str


def make_cases(sources: Sequence[Source], count: int, seed: int) -> list[Case]:
    """`count` random cases from the sources that have two or more sentences."""
    rng = random.Random(seed)
    with_several = [source for source in sources if len(source.sentences) > 1]
    frequency = Counter(word.lower() for source in sources for text in source.sentences for word in _WORD.findall(text))
    cases: list[Case] = []
    while len(cases) < count:
        source = rng.choice(with_several)
        fitting = [text for text in source.sentences if MIN_WORDS <= len(text.split()) <= MAX_WORDS]
        words = _content_words(rng.choice(fitting), frequency) if fitting else []
        if len(words) < 4:
            continue
        # The chosen sentence, or an earlier one that has the same words.
        sentence = next(text for text in fitting if words == _content_words(text, frequency))
        others = rng.sample([other for other in with_several if other is not source], PASSAGES - 1)
        documents = [_document(number, chosen) for number, chosen in enumerate((source, *others))]
        rng.shuffle(documents)
        form = rng.choice(FORMS)
        half = len(words) // 2
        rare = _in_sentence_order(sentence, words[: max(3, half)])
        common = _in_sentence_order(sentence, words[half:])
        paraphrase = form.format(f"{common} in {source.title}")
        cases.append(Case(tuple(documents), sentence, form.format(rare), paraphrase))
    return cases


def _in_sentence_order(sentence: str, words: Sequence[str]) -> str:
    """Up to six of the words, joined in the order of the sentence."""
    return " ".join([word for word in _WORD.findall(sentence) if word in words][:6])


def _content_words(sentence: str, frequency: Counter[str]) -> list[str]:
    """The words of more than three letters, the rarest first."""
    words = dict.fromkeys(word for word in _WORD.findall(sentence) if len(word) > 3)
    return sorted(words, key=lambda word: frequency[word.lower()])


def _document(number: int, source: Source) -> Document:
    """The source's first passage as a document."""
    document = Document(f"{number}.txt", source.title, " ".join(source.sentences))
    return replace(document, text=split_passages(document)[0].text)
