"""Rerankers: models that read the question and a passage together, and reorder what the search found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specrace.core.errors import InputError
from specrace.retrieval.embedder import Vectors, encodable, load_library_model
from specrace.retrieval.passages import Passage

# "light" loads no model: an approximate index re-scores its candidates by their stored vectors.
NONE, LIGHT = "none", "light"
# Short name -> hub id.
NAMES = {"bge-reranker-v2-m3": "BAAI/bge-reranker-v2-m3"}
# How many passages are reordered. The n-gram trie paper keeps the best 5 of 100 (section 4.1.4).
CANDIDATES = 100
# How many passages the model reads at a time; not tuned.
BATCH_SIZE = 16


# (question, passages) -> a score for each passage [len(passages)]. Only the order of the scores matters.
Reranker = Callable[[str, Sequence[Passage]], Vectors]


def load_reranker(name: str = LIGHT, *, device: str = "cpu") -> Reranker | None:
    """Load a cross-encoder by folder, hub id or a name in NAMES; None for "none" and "light". Raises InputError."""
    if name in (NONE, LIGHT):
        return None
    model = load_library_model("reranker", NAMES.get(name, name), device)
    architectures = model.model.config.architectures or ["no architecture"]
    # If the model is an embedder, the library adds a classifier with random weights to it.
    if model.num_labels != 1 or not any("ForSequenceClassification" in architecture for architecture in architectures):
        raise InputError(
            f"{name!r} is not a reranker ({architectures[0]}): name a cross-encoder that gives each pair one score."
        )

    def score(question: str, passages: Sequence[Passage]) -> Vectors:
        pairs = [(encodable(question), encodable(f"{passage.title}\n{passage.text}")) for passage in passages]
        return np.asarray(model.predict(pairs, batch_size=BATCH_SIZE, show_progress_bar=False), np.float32)

    return score
