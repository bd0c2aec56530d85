"""Fixtures of the retrieval tests: the real embedder, and a wrapper that records the texts it embeds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Embedder, Vectors, load_embedder


class RecordingEmbedder:
    """Wraps the real embedder; `embedded` lists every text that it has embedded."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.dim = embedder.dim
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.embedded += texts
        return self._embedder.embed(texts)


@pytest.fixture(scope="session")
def embedder() -> Embedder:
    return load_embedder()


@pytest.fixture
def recorder(embedder: Embedder) -> RecordingEmbedder:
    return RecordingEmbedder(embedder)


@pytest.fixture(scope="session")
def documents() -> list[Document]:
    """Three short documents on unrelated topics."""
    return [
        Document(
            "lighthouse.md",
            "Lighthouse",
            "The tower was lit for the first time in 1874. It stands on a reef eleven miles from the shore. "
            "Its keepers were replaced by a machine in 1998.\n\n"
            "## Visits\n\nBoats go out on summer weekends. The climb has 217 steps.",
        ),
        Document(
            "sourdough.md",
            "Sourdough",
            "Sourdough rises because wild yeast gives off gas. The starter is fed with flour and water every day.\n\n"
            "A cold kitchen slows the dough down. Bakers then wait overnight.",
        ),
        Document(
            "violin.txt",
            "Violin",
            "A violin has four strings tuned in fifths. The bow is strung with horse hair and rubbed with rosin.",
        ),
    ]
