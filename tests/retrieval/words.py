"""An embedder that is loaded at once, and documents of any number: texts with the same words are near."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Vectors

WORDS = 2000
TOPICS = 40


class WordEmbedder:
    """The mean of a text's words, `w0` to `w1999`, of which each has a random vector."""

    name = "words"

    def __init__(self, dim: int = 32, seed: int = 0) -> None:
        self.dim = dim
        self._vectors = np.random.default_rng(seed).standard_normal((WORDS + 1, dim)).astype(np.float32)

    def embed(self, texts: Sequence[str]) -> Vectors:
        numbers = [[min(int(found), WORDS) for found in re.findall(r"\bw(\d+)", text)] or [WORDS] for text in texts]
        vectors = np.array([self._vectors[own].sum(0) for own in numbers]).reshape(-1, self.dim)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def generate_documents(count: int, passages: int, seed: int = 0) -> Iterator[Document]:
    """Documents of so many passages of two sentences; the words of a document are of one topic."""
    chance = np.random.default_rng(seed)
    for number in range(count):
        first = int(chance.integers(TOPICS)) * (WORDS // TOPICS)
        words = chance.integers(first, first + WORDS // TOPICS, (passages, 2, 8))
        sentences = [[" ".join(f"w{word}" for word in own) for own in both] for both in words]
        text = "\n\n".join(f"# Part\n\nThe {a}. The {b}." for a, b in sentences)
        yield Document(f"{seed}-{number}.md", f"Document {number}", text)
