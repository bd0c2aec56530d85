"""The passage index: the documents' passages and their vectors, searched by cosine."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from specrace.core.errors import InputError
from specrace.core.files import user_cache_folder, write_atomically
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.passages import Passage, embedded_text, split_passages
from specrace.retrieval.token_limits import TokenLimit

# The vectors of this many sets of documents are kept; a guess. A thousand passages take 1.5 MB.
MAX_CACHE_FILES = 32
_PREFIX, _SUFFIX = "passages-", ".vectors"
_CHECKSUM_BYTES = hashlib.sha256().digest_size
# If an embedder's weights are unchanged, a text's new vector and its stored one have at least this cosine. It may be
# below 1, because an index on disk stores vectors as float16.
_SAME_TEXT_COSINE = 0.99


def require_faiss() -> None:
    """Raise InputError if faiss is not installed."""
    if importlib.util.find_spec("faiss") is None:
        raise InputError("Retrieval needs faiss: run 'pip install faiss-cpu'.")


class SearchIndex(Protocol):
    """What the retriever needs of an index."""

    passages: Sequence[Passage]

    def search(self, vector: Vectors, top: int) -> list[tuple[int, float]]:
        """The number and cosine of the `top` passages nearest to a unit vector [dim], best first, ties by number.

        The result is shorter if the index holds or finds fewer.
        """

    def vectors_of(self, numbers: Sequence[int]) -> Vectors:
        """The vectors [len(numbers), dim] of these passages."""


class PassageIndex:
    """Exact inner-product search over passages by their unit vectors [len(passages), dim].

    It uses numpy, not faiss: on macOS the wheels of torch and faiss each bring an OpenMP runtime, and loading the
    second runtime crashes the process.
    """

    def __init__(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        self.passages = passages
        self._vectors = np.ascontiguousarray(vectors, np.float32)

    def search(self, vector: Vectors, top: int) -> list[tuple[int, float]]:
        scores = self._vectors @ vector
        numbers = np.argsort(-scores, kind="stable")[:top]
        return rank(numbers, scores[numbers])

    def vectors_of(self, numbers: Sequence[int]) -> Vectors:
        return self._vectors[np.asarray(numbers, np.int64)]


def rank(numbers: Iterable[int], scores: Iterable[float]) -> list[tuple[int, float]]:
    """The pairs of number and score, best first, ties by number."""
    pairs = [(int(number), float(score)) for number, score in zip(numbers, scores, strict=True)]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def open_index(
    documents: Sequence[Document],
    embedder: Embedder,
    cache_dir: Path | None = None,
    limits: Sequence[TokenLimit] = (),
) -> PassageIndex:
    """Index the documents, cut into passages within `limits`.

    The vectors come from `cache_dir` (None: the user's cache folder) if the same passages were embedded before. A cache
    that is missing, broken or stale is rebuilt; one that cannot be written is ignored. Raises InputError if the
    documents hold no text.
    """
    passages = [passage for document in documents for passage in split_passages(document, limits=limits)]
    if not passages:
        raise InputError("The documents hold no text to index: give one with some text in it.")
    texts = [embedded_text(passage) for passage in passages]
    file = _cache_file(texts, embedder, cache_dir)
    vectors = _read_vectors(file, texts, embedder) if file else None
    if vectors is None:
        vectors = embedder.embed(texts)
        if file:
            _write_vectors(file, vectors)
    return PassageIndex(passages, vectors)


def _cache_file(texts: Sequence[str], embedder: Embedder, cache_dir: Path | None) -> Path | None:
    """The file for exactly these texts and this embedder, or None if the user has no cache folder."""
    digest = hashlib.sha256(f"{embedder.name}\0{embedder.dim}".encode())
    for text in texts:
        digest.update(b"\0" + text.encode("utf-8", "surrogatepass"))
    folder = cache_dir if cache_dir is not None else user_cache_folder()
    return folder / f"{_PREFIX}{digest.hexdigest()}{_SUFFIX}" if folder else None


def _read_vectors(file: Path, texts: Sequence[str], embedder: Embedder) -> Vectors | None:
    """The cached vectors [len(texts), dim], or None if there are none or the embedder now gives different ones."""
    try:
        content = file.read_bytes()
        # Mark the file as recently used, because `_write_vectors` deletes the least recently used files.
        os.utime(file)
    except OSError:
        return None
    checksum, body = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    shape = (len(texts), embedder.dim)
    if hashlib.sha256(body).digest() != checksum or len(body) != 4 * shape[0] * shape[1]:
        return None
    vectors = np.frombuffer(body, "<f4").astype(np.float32).reshape(shape)
    return vectors if gives_vector(embedder, texts[0], vectors[0]) else None


def gives_vector(embedder: Embedder, text: str, vector: Vectors) -> bool:
    """Whether the embedder still gives this vector for a text: its weights may change under the same name."""
    return float(embedder.embed([text])[0] @ vector) >= _SAME_TEXT_COSINE


def _write_vectors(file: Path, vectors: Vectors) -> None:
    """Write the file, and delete the least recently used cache files beyond MAX_CACHE_FILES."""
    body = vectors.astype("<f4").tobytes()
    with contextlib.suppress(OSError):
        write_atomically(file, hashlib.sha256(body).digest() + body)
        for old_file in sorted(file.parent.glob(f"{_PREFIX}*{_SUFFIX}"), key=os.path.getmtime)[:-MAX_CACHE_FILES]:
            old_file.unlink()
