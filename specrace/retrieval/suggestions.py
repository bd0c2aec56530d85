"""Questions about documents that come without any: from their headings, or their first sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path

from specrace.retrieval.documents import Document
from specrace.retrieval.sentences import is_heading, split_sentences

MAX_CHARACTERS = 100


def suggest_questions(documents: Sequence[Document], most: int) -> list[str]:
    """At most `most` questions, each once: first one about every document, then a second, and so on.

    A heading or sentence that is a question stays as it is; another is quoted in one.
    """
    rounds = zip_longest(*map(_questions, documents))
    return list(islice(dict.fromkeys(filter(None, chain.from_iterable(rounds))), most))


def _questions(document: Document) -> Iterator[str]:
    """About the title, then each section; of a document without headings, about its first sentence."""
    spans = list(split_sentences(document.text))
    sections = [document.text[start:end].lstrip("# \t") for start, end in spans if is_heading(document.text[start:end])]
    headings = [*([document.title] if document.title != Path(document.name).stem else []), *sections]
    if headings:
        yield from (_ask("What do the documents say about “{}”?", each) for each in headings if each)
    elif spans:
        start, end = spans[0]
        yield _ask("Explain: “{}”", document.text[start:end])


def _ask(form: str, words: str) -> str:
    words = " ".join(words.split()).rstrip("#").strip()
    if len(words) > MAX_CHARACTERS:
        words = f"{words[:MAX_CHARACTERS].rpartition(' ')[0] or words[:MAX_CHARACTERS]} …"
    return words if words.endswith("?") else form.format(words)
