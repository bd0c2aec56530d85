"""Building an index on disk, and adding to one: documents stream through, so memory stays flat."""

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
from specrace.core.files import explained
from specrace.retrieval.documents import REPORT_S, Document
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import embedded_text, require_faiss
from specrace.retrieval.passages import Passage
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
    Head,
    StoredIndex,
    StoredPassages,
    checksum,
    damaged,
    read_head,
    stored_vectors,
)

# Codes of 8 bits have 256 centroids, and faiss wants 39 vectors for each; exact search in so few takes 2 ms.
EXACT_BELOW = 10_000
# The n-gram trie paper's (section 4.1.4).
MAX_LISTS, SUB_VECTORS, PROBES = 4096, 64, 16
# Two million passages have the most lists. Measured on sentence embeddings, 16 of 128 lists hold .94 of the best five,
# and 16 of 256 .91.
PASSAGES_A_LIST = 512
# faiss asks for 39, and as many for each of the 256 centroids of a code; three times that is no better.
TRAINED_A_LIST, MIN_TRAINED_ON = 40, 32_768
BATCH = 1024
BLOCK = 32_768
SAMPLE = 200
BEST = 5

Split = Callable[[Document], Sequence[Passage]]
OnProgress = Callable[[str], object]


def build_index(
    documents: Iterable[Document],
    embedder: Embedder,
    folder: Path,
    split: Split,
    *,
    head: Head,
    on_progress: OnProgress = str,
) -> Head:
    """Index documents into a new folder, which appears only once it is whole. `head` has how they are split.

    Raises InputError for a folder that is there or cannot be written, and for documents without text.
    """
    require_absent(folder)
    with explained(folder, "--out"):
        building = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name}-"))
        try:
            begun = replace(head, embedder=embedder.name, dim=embedder.dim)
            head = _append(building, begun, documents, split, embedder, on_progress)
            building.chmod(0o755)
            building.rename(folder)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    return head


def require_absent(folder: Path) -> None:
    """Raises InputError for a folder that is there: an index is not overwritten."""
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is there already: add to an index with --add, or choose another --out.")


def add_to_index(
    documents: Iterable[Document], embedder: Embedder, folder: Path, split: Split, *, on_progress: OnProgress = str
) -> Head:
    """Index further documents; those that are there already, with the same name and text, are passed over.

    An IVF-PQ index is not trained again. Until the end the index is as it was, also for who has it open.
    Raises InputError.
    """
    stored = StoredIndex(folder)
    # It is whole, and the embedder has the same weights.
    stored.open(embedder)
    with explained(folder, "--out"):
        return _append(folder, stored.head, documents, split, embedder, on_progress)


def _append(
    folder: Path, head: Head, documents: Iterable[Document], split: Split, embedder: Embedder, on_progress: OnProgress
) -> Head:
    with _Files(folder, head) as files:
        passages, last = _passages_of(documents, split, files), time.monotonic()
        while batch := list(islice(passages, BATCH)):
            files.add_passages(batch, embedder.embed([embedded_text(passage) for passage in batch]))
            if time.monotonic() - last >= REPORT_S:
                on_progress(f"Indexed {files.passages:,} passages of {files.documents:,} documents")
                last = time.monotonic()
        found = replace(head, documents=files.documents, passages=files.passages, sizes=files.sizes())
        if not found.passages:
            raise InputError(f"The documents hold no text to index: give some with text; {HINT}.")
        # Until the head is written another addition would cut off what was added here.
        if found.passages > head.passages:
            found = replace(found, date=datetime.now(UTC).isoformat(timespec="seconds"))
            if found.passages >= EXACT_BELOW:
                found = _approximate(folder, head, found, embedder, on_progress)
            found.write(folder)
            if head.kind == IVF_PQ:
                (folder / head.faiss_file).unlink(missing_ok=True)
    return found


def _passages_of(documents: Iterable[Document], split: Split, files: _Files) -> Iterator[Passage]:
    for document in documents:
        if files.is_new(document) and (passages := split(document)):
            files.add_document(document)
            yield from passages


class _Files:
    """The growing files, cut to what counts of them first. Only one process has them at a time.

    Raises InputError where another adds or has added to them, or where they are damaged.
    """

    def __init__(self, folder: Path, head: Head) -> None:
        self._folder, self._head, self._stack = folder, head, ExitStack()
        self.documents, self.passages = head.documents, head.passages
        self._end = head.sizes.get(PASSAGES, 0)
        self._known = set[tuple[str, bytes]]()

    def __enter__(self) -> _Files:
        names = (DOCUMENTS, PASSAGES, ENDS, VECTORS)
        self._streams = {name: self._stack.enter_context((self._folder / name).open("a+b")) for name in names}
        try:
            self._lock()
            for name, stream in self._streams.items():
                stream.truncate(self._head.sizes.get(name, 0))
                stream.seek(0)
            self._read_documents()
        except BaseException:
            self._stack.close()
            raise
        for stream in self._streams.values():
            stream.seek(0, os.SEEK_END)
        if not self.passages:
            self._streams[ENDS].write(bytes(8))
        return self

    def _lock(self) -> None:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._streams[DOCUMENTS], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"Another process adds to {self._folder}: wait until it has ended.") from error
        if self._head.passages and read_head(self._folder) != self._head:
            raise InputError(f"Another process has just added to {self._folder}: run this again.")

    def _read_documents(self) -> None:
        try:
            for line in self._streams[DOCUMENTS]:
                name, title, text = json.loads(line)
                self._known.add((name, _digest(Document(name, title, text))))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._folder, f"{DOCUMENTS}: {error}") from error

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_new(self, document: Document) -> bool:
        """Whether no document of the same name has the same text."""
        return (document.name, _digest(document)) not in self._known

    def add_document(self, document: Document) -> None:
        self._known.add((document.name, _digest(document)))
        self._streams[DOCUMENTS].write(_line([document.name, document.title, document.text]))
        self.documents += 1

    def add_passages(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        for each in passages:
            line = _line([each.document, each.title, each.start, each.end, each.text, each.place])
            self._end += self._streams[PASSAGES].write(line)
            self._streams[ENDS].write(self._end.to_bytes(8, "little"))
        self._streams[VECTORS].write(vectors.astype("<f2").tobytes())
        self.passages += len(passages)

    def sizes(self) -> dict[str, int]:
        """Bytes of each file, once they are on the disk."""
        for stream in self._streams.values():
            stream.flush()
            os.fsync(stream.fileno())
        return {name: stream.tell() for name, stream in self._streams.items()}


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _digest(document: Document) -> bytes:
    return hashlib.sha256(f"{document.title}\0{document.text}".encode("utf-8", "surrogatepass")).digest()


def _approximate(folder: Path, before: Head, head: Head, embedder: Embedder, on_progress: OnProgress) -> Head:
    """Write the IVF-PQ index of all vectors, and measure it."""
    require_faiss()
    import faiss

    vectors, first = stored_vectors(folder, head), 0
    ivf: Any
    if before.kind == IVF_PQ:
        on_progress(f"Adding {head.passages - before.passages:,} passages to {before.lists:,} lists")
        first, ivf = before.passages, faiss.read_index(str(folder / before.faiss_file))
    else:
        lists = min(MAX_LISTS, 2 ** ((head.passages // PASSAGES_A_LIST).bit_length() - 1))
        sub_vectors = next(count for count in range(SUB_VECTORS, 0, -1) if head.dim % count == 0)
        on_progress(f"Training {lists:,} lists and {sub_vectors} sub-vectors")
        ivf = _train(vectors, lists, sub_vectors)
        head = replace(head, kind=IVF_PQ, lists=lists, sub_vectors=sub_vectors, probes=PROBES, trained_on=head.passages)
    for start in range(first, head.passages, BLOCK):
        ivf.add(np.asarray(vectors[start : start + BLOCK], np.float32))
    faiss.write_index(ivf, str(folder / head.faiss_file))
    ivf.nprobe = head.probes
    on_progress("Measuring the recall")
    recall, unranked, sample = measure_recall(StoredPassages(folder, head), vectors, ivf, embedder)
    head = replace(head, recall=recall, unranked_recall=unranked, recall_sample=sample)
    return replace(head, checksum=checksum(folder / head.faiss_file))


def _train(vectors: HalfVectors, lists: int, sub_vectors: int) -> Any:
    """An empty IVF-PQ index for vectors like these. Its sample is large enough for faiss to warn of nothing."""
    import faiss

    total, dim = vectors.shape
    size = min(total, max(MIN_TRAINED_ON, TRAINED_A_LIST * lists))
    chosen = np.sort(np.random.default_rng(0).choice(total, size, replace=False))
    quantizer = faiss.IndexFlatIP(dim)
    ivf = faiss.IndexIVFPQ(quantizer, dim, lists, sub_vectors, 8, faiss.METRIC_INNER_PRODUCT)
    ivf.train(np.asarray(vectors[chosen], np.float32))
    return ivf


def measure_recall(
    passages: Sequence[Passage], vectors: HalfVectors, ivf: Any, embedder: Embedder
) -> tuple[float, float, int]:
    """The share of exact search's best five that the index finds, with and without re-scoring, and the sample's size.

    What is asked is the longest sentence of each passage of the sample.
    """
    chosen = np.sort(np.random.default_rng(1).choice(len(passages), min(SAMPLE, len(passages)), replace=False))
    asked = embedder.embed([_longest_sentence(passages[int(number)].text) for number in chosen])
    exact = exact_best(vectors, asked, BEST)
    shares = []
    for rescore in (True, False):
        index = ApproximateIndex(passages, vectors, ivf, rescore=rescore)
        found = [{number for number, _ in index.search(vector, BEST)} for vector in asked]
        shares.append(float(np.mean([len(own & set(best)) / BEST for own, best in zip(found, exact, strict=True)])))
    return shares[0], shares[1], len(chosen)


def exact_best(vectors: HalfVectors, asked: Vectors, top: int) -> np.ndarray:
    """The numbers [len(asked), top] of the vectors nearest to each that is asked, in no order, block by block."""
    numbers = np.zeros((len(asked), 0), np.int64)
    scores = np.zeros((len(asked), 0), np.float32)
    for start in range(0, len(vectors), BLOCK):
        block = np.asarray(vectors[start : start + BLOCK], np.float32)
        own = np.broadcast_to(np.arange(start, start + len(block)), (len(asked), len(block)))
        numbers, scores = np.hstack([numbers, own]), np.hstack([scores, asked @ block.T])
        best = np.argsort(-scores, axis=1)[:, :top]
        numbers, scores = np.take_along_axis(numbers, best, 1), np.take_along_axis(scores, best, 1)
    return numbers


def _longest_sentence(text: str) -> str:
    sentences = [text[start:end] for start, end in split_sentences(text)]
    return max((each for each in sentences if not is_heading(each)), key=len, default=text)
