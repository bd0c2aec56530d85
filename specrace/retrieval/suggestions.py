"""Questions about documents that come without any: from their headings and their key sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path

from specrace.retrieval.documents import Document
from specrace.retrieval.passages import count_words
from specrace.retrieval.retriever import content_words
from specrace.retrieval.sentences import is_heading, split_sentences

MAX_CHARACTERS = 100
# Words of a key sentence.
SHORTEST, LONGEST = 6, 40


def suggest_questions(documents: Sequence[Document], most: int) -> list[str]:
    """At most `most` questions, each once: first one about every document, then a second, and so on.

    A heading or sentence that is a question stays as it is; another is quoted in one.
    """
    rounds = zip_longest(*map(_questions, documents))
    return list(islice(dict.fromkeys(filter(None, chain.from_iterable(rounds))), most))


def _questions(document: Document) -> Iterator[str]:
    """About the title, then each section, then key sentences; without headings about the first sentence first."""
    pieces = [document.text[start:end] for start, end in split_sentences(document.text)]
    sections = [piece.lstrip("# \t") for piece in pieces if is_heading(piece)]
    headings = [*([document.title] if document.title != Path(document.name).stem else []), *sections]
    yield from (_ask("What do the documents say about “{}”?", each) for each in headings if each)
    sentences = [piece for piece in pieces if not is_heading(piece)]
    first = [] if headings else sentences[:1]
    yield from (_ask("Explain: “{}”", each) for each in chain(first, _key_sentences(sentences)))


def _key_sentences(sentences: Sequence[str]) -> list[str]:
    """Those that share the most content words with the others, for their length, first."""
    words = {sentence: content_words(sentence) for sentence in sentences}
    counts = Counter(chain.from_iterable(words.values()))
    fit = [each for each, own in words.items() if own and SHORTEST <= count_words(each) <= LONGEST]
    return sorted(fit, key=lambda each: -sum(counts[word] - 1 for word in words[each]) / len(words[each]))


def _ask(form: str, words: str) -> str:
    words = " ".join(words.split()).rstrip("#").strip()
    if len(words) > MAX_CHARACTERS:
        words = f"{words[:MAX_CHARACTERS].rpartition(' ')[0] or words[:MAX_CHARACTERS]} …"
    return words if words.endswith("?") else form.format(words)
