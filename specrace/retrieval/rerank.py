"""Rerankers: the order of the passages that a search found, by reading each beside the question."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specrace.core.errors import InputError
from specrace.retrieval.embedder import Vectors, load_library_model
from specrace.retrieval.passages import Passage

# "light" is the search's own: the candidates of an approximate index by their stored vectors.
NONE, LIGHT = "none", "light"
NAMES = {"bge-reranker-v2-m3": "BAAI/bge-reranker-v2-m3"}
# As the n-gram trie paper does (section 4.1.4): from 100 to the best 5.
CANDIDATES = 100
BATCH_SIZE = 16


# Question and passages -> how well each answers [len(passages)]; only the order counts.
Reranker = Callable[[str, Sequence[Passage]], Vectors]


def load_reranker(name: str = LIGHT, *, device: str = "cpu") -> Reranker | None:
    """A cross-encoder by folder, hub id or a name in NAMES; None for "none" and "light". Raises InputError."""
    if name in (NONE, LIGHT):
        return None
    model = load_library_model("reranker", NAMES.get(name, name), device)
    architectures = model.model.config.architectures or ["no architecture"]
    # The library would put random weights on an embedder.
    if model.num_labels != 1 or not any("ForSequenceClassification" in each for each in architectures):
        raise InputError(f"{name!r} is no reranker ({architectures[0]}): name a cross-encoder with one score a pair.")

    def score(question: str, passages: Sequence[Passage]) -> Vectors:
        texts = (f"{passage.title}\n{passage.text}" for passage in passages)
        pairs = [tuple(each.encode("utf-8", "replace").decode() for each in (question, text)) for text in texts]
        return np.asarray(model.predict(pairs, batch_size=BATCH_SIZE, show_progress_bar=False), np.float32)

    return score
