"""Builds an index on disk, or adds to one. Documents are streamed, so memory does not grow with their number.

A small index is searched exactly, a large one approximately, with faiss's IVF-PQ: vectors are kept in lists, of which a
search probes a few, and each vector is coded as sub-vectors of 8 bits.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from specrace.core.errors import InputError
from specrace.core.files import as_input_error
from specrace.retrieval.code_spans import is_inside
from specrace.retrieval.documents import REPORT_S, Document, ignore
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import require_faiss
from specrace.retrieval.passages import Passage, embedded_text
from specrace.retrieval.sentences import is_heading, split_sentences
from specrace.retrieval.store import (
    DOCUMENTS,
    ENDS,
    HINT,
    IVF_PQ,
    PASSAGES,
    VECTORS,
    ApproximateIndex,
    HalfVectors,
    IndexHeader,
    StoredIndex,
    StoredPassages,
    checksum,
    damaged,
    read_header,
    stored_vectors,
)

# A smaller index is searched exactly, which takes at most 2 ms. It would also be too small for training: faiss asks for
# 39 vectors for each of the 256 centroids of an 8-bit code (9,984).
EXACT_BELOW = 10_000
# The values with which the n-gram trie paper searches its documents (section 4.1.4).
MAX_LISTS, SUB_VECTORS, PROBES = 4096, 64, 16
# With this value, MAX_LISTS is reached at two million passages. On sentence embeddings, 16 of 128 lists held 94 % of
# the best five passages, and 16 of 256 lists held 91 %.
PASSAGES_PER_LIST = 512
# faiss asks for 39 training vectors for each list and for each of a code's 256 centroids. Three times as many did not
# make the index better.
TRAINING_VECTORS_PER_LIST, MIN_TRAINING_VECTORS = 40, 32_768
# How many passages are embedded, and how many vectors are read, at a time. They bound the memory, and are not tuned: a
# block of vectors with 384 numbers takes 50 MB.
BATCH, BLOCK = 1024, 32_768
# The recall is measured with a sentence from each of this many passages (a guess), on this many of the best results: as
# many as the paper gives to the model.
RECALL_SAMPLE, RECALL_TOP = 200, 5

# Cuts a document into passages.
Split = Callable[[Document], Sequence[Passage]]
OnProgress = Callable[[str], object]


def build_index(
    documents: Iterable[Document],
    embedder: Embedder,
    folder: Path,
    split: Split,
    *,
    header: IndexHeader,
    on_progress: OnProgress = ignore,
) -> IndexHeader:
    """Index documents into a new folder, which appears only when the index is complete.

    `split` cuts a document into passages; `header` holds the settings of `split`. Raises InputError for a folder that
    exists or cannot be written, and for documents without text.
    """
    require_absent(folder)
    with as_input_error(folder, "--out"):
        unfinished = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name}-"))
        try:
            header = replace(header, embedder=embedder.name, dim=embedder.dim)
            header = _append(unfinished, header, documents, split, embedder, on_progress)
            unfinished.chmod(0o755)
            unfinished.rename(folder)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return header


def require_absent(folder: Path) -> None:
    """Raise InputError if the folder exists: an index is not overwritten."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} exists already: add to an index with --add, or choose another --out.")


def add_to_index(
    documents: Iterable[Document], embedder: Embedder, folder: Path, split: Split, *, on_progress: OnProgress = ignore
) -> IndexHeader:
    """Add documents to an index, except those it already has with the same name, title and text.

    An IVF-PQ index is not trained again. The header on disk changes only at the end, and a process that has the index
    open continues to search the old one. Raises InputError.
    """
    stored = StoredIndex(folder)
    # Raises InputError for an index that is incomplete, or was made with other weights.
    stored.open(embedder)
    with as_input_error(folder, "--out"):
        return _append(folder, stored.header, documents, split, embedder, on_progress)


def _append(
    folder: Path,
    header: IndexHeader,
    documents: Iterable[Document],
    split: Split,
    embedder: Embedder,
    on_progress: OnProgress,
) -> IndexHeader:
    """Append the documents' passages to the index whose header is `header`; write the new header and return it."""
    with _Files(folder, header) as files:
        passages, last_report = _new_passages(documents, split, files), time.monotonic()
        while batch := list(islice(passages, BATCH)):
            files.add_passages(batch, embedder.embed([embedded_text(passage) for passage in batch]))
            if time.monotonic() - last_report >= REPORT_S:
                on_progress(f"Indexed {files.passages:,} passages of {files.documents:,} documents")
                last_report = time.monotonic()
        new_header = replace(header, documents=files.documents, passages=files.passages, sizes=files.sizes())
        if not new_header.passages:
            raise InputError(f"The documents hold no text to index: give some with text; {HINT}.")
        # Write the header before the end of the `with` unlocks the files: another process would cut off passages that
        # the header does not count.
        if new_header.passages > header.passages:
            new_header = replace(new_header, date=datetime.now(UTC).isoformat(timespec="seconds"))
            if new_header.passages >= EXACT_BELOW:
                new_header = _approximate(folder, header, new_header, embedder, on_progress)
            new_header.write(folder)
            if header.kind == IVF_PQ:
                # The new index has a file of its own, because its name has the number of passages.
                (folder / header.faiss_file).unlink(missing_ok=True)
    return new_header


def _new_passages(documents: Iterable[Document], split: Split, files: _Files) -> Iterator[Passage]:
    """Yield the passages of documents that are not in the index, after adding each such document to `files`."""
    for document in documents:
        if files.is_new(document) and (passages := split(document)):
            files.add_document(document)
            yield from passages


class _Files:
    """The index's files, locked and open for appending.

    Bytes beyond the sizes in the header, which an interrupted addition left, are cut off first. Raises InputError if
    another process adds to the files or has just done so, or if they are damaged.
    """

    def __init__(self, folder: Path, header: IndexHeader) -> None:
        self._folder, self._header, self._stack = folder, header, ExitStack()
        self.documents, self.passages = header.documents, header.passages
        self._passages_end = header.sizes.get(PASSAGES, 0)
        self._digests = set[tuple[str, bytes]]()

    def __enter__(self) -> _Files:
        names = (DOCUMENTS, PASSAGES, ENDS, VECTORS)
        self._streams = {name: self._stack.enter_context((self._folder / name).open("a+b")) for name in names}
        try:
            self._lock()
            for name, stream in self._streams.items():
                stream.truncate(self._header.sizes.get(name, 0))
                stream.seek(0)
            self._read_documents()
        except BaseException:
            self._stack.close()
            raise
        for stream in self._streams.values():
            stream.seek(0, os.SEEK_END)
        # ENDS begins with offset 0, at which the first passage begins; then each passage has the offset of its end.
        if not self.passages:
            self._streams[ENDS].write(bytes(8))
        return self

    def _lock(self) -> None:
        """Lock the files. Raises InputError if another process adds to them, or has since the header was read."""
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._streams[DOCUMENTS], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"Another process is adding to {self._folder}: wait until it has ended.") from error
        if self._header.passages and read_header(self._folder) != self._header:
            raise InputError(f"Another process has just added to {self._folder}: run this again.")

    def _read_documents(self) -> None:
        """Compute the digests of all documents in the index. Raises InputError."""
        try:
            for line in self._streams[DOCUMENTS]:
                name, title, text = json.loads(line)
                self._digests.add((name, _digest(Document(name, title, text))))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._folder, f"{DOCUMENTS}: {error}") from error

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_new(self, document: Document) -> bool:
        """Whether the index has no document with this name, title and text."""
        return (document.name, _digest(document)) not in self._digests

    def add_document(self, document: Document) -> None:
        """Append a document, without its passages."""
        self._digests.add((document.name, _digest(document)))
        self._streams[DOCUMENTS].write(_line([document.name, document.title, document.text]))
        self.documents += 1

    def add_passages(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        """Append passages and their vectors [len(passages), dim]."""
        for passage in passages:
            place = (passage.start, passage.end, passage.text, passage.place)
            line = _line([passage.document, passage.title, *place, *([passage.code] if passage.code else [])])
            self._passages_end += self._streams[PASSAGES].write(line)
            self._streams[ENDS].write(self._passages_end.to_bytes(8, "little"))
        self._streams[VECTORS].write(vectors.astype("<f2").tobytes())
        self.passages += len(passages)

    def sizes(self) -> dict[str, int]:
        """Write everything to disk, then return each file's size in bytes."""
        for stream in self._streams.values():
            stream.flush()
            os.fsync(stream.fileno())
        return {name: stream.tell() for name, stream in self._streams.items()}


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _digest(document: Document) -> bytes:
    return hashlib.sha256(f"{document.title}\0{document.text}".encode("utf-8", "surrogatepass")).digest()


def _approximate(
    folder: Path, old_header: IndexHeader, header: IndexHeader, embedder: Embedder, on_progress: OnProgress
) -> IndexHeader:
    """Write the IVF-PQ index of all vectors and measure its recall; return `header` with the results.

    `old_header` is the header before the addition. An index that was IVF-PQ already is extended, not trained again.
    """
    require_faiss()
    import faiss

    vectors, first = stored_vectors(folder, header), 0
    ivf: Any
    if old_header.kind == IVF_PQ:
        on_progress(f"Adding {header.passages - old_header.passages:,} passages to {old_header.lists:,} lists")
        first, ivf = old_header.passages, faiss.read_index(str(folder / old_header.faiss_file))
    else:
        # The largest power of two that leaves PASSAGES_PER_LIST passages to a list, and the largest divisor of `dim`.
        lists = min(MAX_LISTS, 2 ** ((header.passages // PASSAGES_PER_LIST).bit_length() - 1))
        sub_vectors = next(count for count in range(SUB_VECTORS, 0, -1) if header.dim % count == 0)
        on_progress(f"Training {lists:,} lists and {sub_vectors} sub-vectors")
        ivf = _train(vectors, lists, sub_vectors)
        header = replace(
            header, kind=IVF_PQ, lists=lists, sub_vectors=sub_vectors, probes=PROBES, trained_on=header.passages
        )
    for start in range(first, header.passages, BLOCK):
        ivf.add(np.asarray(vectors[start : start + BLOCK], np.float32))
    faiss.write_index(ivf, str(folder / header.faiss_file))
    ivf.nprobe = header.probes
    on_progress("Measuring the recall")
    recall, unranked, sample = measure_recall(StoredPassages(folder, header), vectors, ivf, embedder)
    header = replace(header, recall=recall, unranked_recall=unranked, recall_sample=sample)
    return replace(header, checksum=checksum(folder / header.faiss_file))


def _train(vectors: HalfVectors, lists: int, sub_vectors: int) -> Any:
    """A trained IVF-PQ index without entries. The sample is large enough that faiss prints no warning."""
    import faiss

    total, dim = vectors.shape
    size = min(total, max(MIN_TRAINING_VECTORS, TRAINING_VECTORS_PER_LIST * lists))
    chosen = np.sort(np.random.default_rng(0).choice(total, size, replace=False))
    quantizer = faiss.IndexFlatIP(dim)
    bits = 8
    ivf = faiss.IndexIVFPQ(quantizer, dim, lists, sub_vectors, bits, faiss.METRIC_INNER_PRODUCT)
    ivf.train(np.asarray(vectors[chosen], np.float32))
    return ivf


def measure_recall(
    passages: Sequence[Passage], vectors: HalfVectors, ivf: Any, embedder: Embedder
) -> tuple[float, float, int]:
    """The index's recall@5 with re-scoring by the stored vectors and without, and the number of queries.

    The queries are the longest sentences of sampled passages. The ground truth is the best five by exact search.
    """
    chosen = np.sort(np.random.default_rng(1).choice(len(passages), min(RECALL_SAMPLE, len(passages)), replace=False))
    queries = embedder.embed([_longest_sentence(passages[int(number)]) for number in chosen])
    exact = exact_best(vectors, queries, RECALL_TOP)
    recalls = []
    for rescore in (True, False):
        index = ApproximateIndex(passages, vectors, ivf, rescore=rescore)
        results = [{number for number, _ in index.search(query, RECALL_TOP)} for query in queries]
        shares = [len(numbers & set(best)) / RECALL_TOP for numbers, best in zip(results, exact, strict=True)]
        recalls.append(float(np.mean(shares)))
    return recalls[0], recalls[1], len(chosen)


def exact_best(vectors: HalfVectors, queries: Vectors, top: int) -> np.ndarray:
    """The numbers [len(queries), top] of the vectors nearest to each query, best first.

    Vectors are read block by block, to save memory.
    """
    numbers = np.zeros((len(queries), 0), np.int64)
    scores = np.zeros((len(queries), 0), np.float32)
    for start in range(0, len(vectors), BLOCK):
        block = np.asarray(vectors[start : start + BLOCK], np.float32)
        block_numbers = np.broadcast_to(np.arange(start, start + len(block)), (len(queries), len(block)))
        numbers, scores = np.hstack([numbers, block_numbers]), np.hstack([scores, queries @ block.T])
        best = np.argsort(-scores, axis=1)[:, :top]
        numbers, scores = np.take_along_axis(numbers, best, 1), np.take_along_axis(scores, best, 1)
    return numbers


def _longest_sentence(passage: Passage) -> str:
    """The longest sentence that is not a heading; the whole text if it has only headings."""
    text = passage.text
    sentences = (
        text[start:end]
        for start, end in split_sentences(text)
        if is_inside(passage.code, start) or not is_heading(text[start:end])
    )
    return max(sentences, key=len, default=text)
