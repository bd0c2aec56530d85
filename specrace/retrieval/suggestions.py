"""Suggests questions about documents, from their headings and their key sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path

from specrace.retrieval.code_spans import is_inside
from specrace.retrieval.documents import Document
from specrace.retrieval.passages import count_words
from specrace.retrieval.retriever import content_words
from specrace.retrieval.sentences import is_heading, split_sentences

# A longer heading or sentence is shortened, so that the question fits on a button; a guess.
MAX_CHARACTERS = 100
# What begins a comment in code.
_COMMENT_MARKS = "#/*-;% \t"
# The length of a key sentence, in words; a guess. Shorter ones say little, longer ones do not fit on a button.
MIN_WORDS, MAX_WORDS = 6, 40


def suggest_questions(documents: Sequence[Document], max_questions: int) -> list[str]:
    """At most `max_questions` different questions, one from each document in turn.

    A heading or sentence that is a question already is used unchanged; any other is quoted in a question.
    """
    rounds = zip_longest(*map(_questions, documents))
    questions = (question for next_questions in rounds for question in next_questions if question)
    # A dictionary drops duplicates but keeps the order.
    return list(islice(dict.fromkeys(questions), max_questions))


def _questions(document: Document) -> Iterator[str]:
    """Questions about the title, then the sections, then key sentences.

    If a document has no headings, its first sentence comes before the key sentences.
    """
    sections, sentences = list[str](), list[str]()
    for start, end in split_sentences(document.text):
        sentence = document.text[start:end]
        if is_heading(sentence) and not is_inside(document.code, start):
            sections.append(sentence.lstrip("# \t"))
        else:
            sentences.append(sentence.lstrip(_COMMENT_MARKS) if is_inside(document.code, start) else sentence)
    # A document without a title of its own is called after its file.
    has_title = document.title != Path(document.name).stem
    headings = [document.title, *sections] if has_title else sections
    yield from (_make_question("What do the documents say about “{}”?", heading) for heading in headings if heading)
    first_sentence = [] if headings else sentences[:1]
    for sentence in chain(first_sentence, _key_sentences(sentences)):
        yield _make_question("Explain: “{}”", sentence)


def _key_sentences(sentences: Sequence[str]) -> list[str]:
    """Sentences of a usual length, best first: those whose content words occur most often in the others."""
    words = {sentence: content_words(sentence) for sentence in sentences}
    counts = Counter(chain.from_iterable(words.values()))

    def score(sentence: str) -> float:
        return sum(counts[word] - 1 for word in words[sentence]) / len(words[sentence])

    candidates = [text for text in words if words[text] and MIN_WORDS <= count_words(text) <= MAX_WORDS]
    return sorted(candidates, key=lambda sentence: -score(sentence))


def _make_question(template: str, words: str) -> str:
    """Put the words, shortened if they are long, into the template, unless they are a question already."""
    words = " ".join(words.split()).rstrip("#").strip()
    if len(words) > MAX_CHARACTERS:
        words = f"{words[:MAX_CHARACTERS].rpartition(' ')[0] or words[:MAX_CHARACTERS]} …"
    return words if words.endswith("?") else template.format(words)
