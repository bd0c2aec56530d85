"""An embedder without a model, for which texts that share words are similar; and generated documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Vectors

WORDS = 2000
TOPICS = 40


class WordEmbedder:
    """Embeds a text as the normalised sum of its words' vectors.

    Each of the words `w0` to `w1999` has a random vector. Words with a higher number, and texts without such words,
    share another one.
    """

    name = "words"

    def __init__(self, dim: int = 32, seed: int = 0) -> None:
        self.dim = dim
        self._vectors = np.random.default_rng(seed).standard_normal((WORDS + 1, dim)).astype(np.float32)

    def embed(self, texts: Sequence[str]) -> Vectors:
        numbers = [[min(int(number), WORDS) for number in re.findall(r"\bw(\d+)", text)] or [WORDS] for text in texts]
        vectors = np.array([self._vectors[words].sum(0) for words in numbers]).reshape(-1, self.dim)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def generate_documents(count: int, passages: int, seed: int = 0) -> Iterator[Document]:
    """Generate documents of `passages` passages of two sentences; all words of a document come from one topic."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        first = int(rng.integers(TOPICS)) * (WORDS // TOPICS)
        words = rng.integers(first, first + WORDS // TOPICS, (passages, 2, 8))
        sentences = [[" ".join(f"w{word}" for word in sentence) for sentence in pair] for pair in words]
        text = "\n\n".join(f"# Part\n\nThe {a}. The {b}." for a, b in sentences)
        yield Document(f"{seed}-{number}.md", f"Document {number}", text)
