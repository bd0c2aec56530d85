"""An index on disk: files that are only appended to, and a head that tells how much of them counts.

A folder holds `index.json` (the head), `documents.jsonl`, `passages.jsonl`, the ends of its lines in `passages.u64`,
the unit vectors in `vectors.f16`, and for a large corpus the IVF-PQ index of faiss. All but the head are memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from specrace.core.errors import InputError
from specrace.core.files import read_bytes, write_whole
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import PassageIndex, SearchIndex, embedded_text, ranked, require_faiss
from specrace.retrieval.passages import Passage
from specrace.retrieval.rerank import CANDIDATES

FORMAT, VERSION = "specrace-index", 1
HEAD, DOCUMENTS, PASSAGES = "index.json", "documents.jsonl", "passages.jsonl"
ENDS, VECTORS = "passages.u64", "vectors.f16"
EXACT, IVF_PQ = "exact", "ivf-pq"
MAX_HEAD_BYTES = 1_000_000
SAME_TEXT_COSINE = 0.99
HINT = "make one with: python -m specrace index DIR --out INDEX"

HalfVectors = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Head:
    """What is known of an index without opening it. `sizes` are the bytes that count of each file.

    `lists`, `sub_vectors` and `probes` are IVF-PQ's. `recall` is the share of exact search's best five passages among
    the index's own, with and without (`unranked_recall`) re-scoring, on a sentence of each of `recall_sample` passages.
    """

    embedder: str = ""
    dim: int = 0
    documents: int = 0
    passages: int = 0
    passage_tokens: int = 0
    overlap: int = 0
    date: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    kind: str = EXACT
    lists: int = 0
    sub_vectors: int = 0
    probes: int = 0
    trained_on: int = 0
    checksum: str = ""
    recall: float = 1.0
    unranked_recall: float = 1.0
    recall_sample: int = 0

    @property
    def faiss_file(self) -> str:
        """The file of the IVF-PQ index; another after every addition."""
        return f"passages-{self.passages}.faiss"

    def write(self, folder: Path) -> None:
        """Make what was appended count."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_whole(folder / HEAD, json.dumps(content, indent=1, ensure_ascii=False).encode())
        # Another user may serve the index.
        (folder / HEAD).chmod(0o644)

    def words(self) -> str:
        """How the index searches, and how well."""
        if self.kind == EXACT:
            return "exact search"
        return (
            f"IVF-PQ: {self.lists:,} lists for {self.trained_on:,} passages, {self.probes} probed, "
            f"{self.sub_vectors} sub-vectors; "
            f"recall@5 {self.recall:.2f} ({self.unranked_recall:.2f} before re-scoring) "
            f"on {self.recall_sample} passages' own sentences"
        )


def read_head(folder: Path) -> Head:
    """The head of the index in `folder`. Raises InputError for one that is missing, damaged, cut or foreign."""
    if not (folder / HEAD).is_file():
        raise InputError(f"{folder} holds no index: {HINT}.")
    try:
        found = json.loads(read_bytes(folder / HEAD, MAX_HEAD_BYTES, HINT))
        if (found.pop("format"), found.pop("version")) != (FORMAT, VERSION):
            raise ValueError("another format or version")
        head = Head(**found)
        _check(folder, head)
    except (ValueError, OSError) as error:
        raise damaged(folder, error) from error
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(folder, f"{HEAD} is of another program") from error
    return head


def damaged(folder: Path, error: object) -> InputError:
    """The one sentence on an index that cannot be used."""
    return InputError(f"The index {folder} is damaged or foreign ({error}): build it again, into another folder.")


def _check(folder: Path, head: Head) -> None:
    """Raises ValueError or OSError for a head that is not possible, or whose files are shorter than it tells."""
    plain = Head()
    for each in fields(Head):
        value = getattr(head, each.name)
        if type(value) is not type(getattr(plain, each.name)) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{each.name} in {HEAD} is wrong")
    least = {ENDS: 8 * (head.passages + 1), VECTORS: 2 * head.dim * head.passages, PASSAGES: 1, DOCUMENTS: 1}
    if set(head.sizes) != set(least) or not (head.passages and head.dim) or head.kind not in (EXACT, IVF_PQ):
        raise ValueError(f"{HEAD} is incomplete")
    for name, size in head.sizes.items():
        if type(size) is not int or size < least[name] or (name in (ENDS, VECTORS) and size != least[name]):
            raise ValueError(f"the size of {name} is wrong")
        if (folder / name).stat().st_size < size:
            raise ValueError(f"{name} is cut off")


class StoredIndex:
    """An index in a folder, not opened yet. Raises InputError for one that is missing, damaged, cut or foreign."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.head = folder, read_head(folder)

    def open(self, embedder: Embedder, rescore: bool = True) -> SearchIndex:
        """Memory-mapped; an approximate index re-scores what it finds unless told otherwise. Raises InputError."""
        # An addition since the head was read has replaced the file of an approximate index.
        self.head = read_head(self.folder)
        passages, vectors = StoredPassages(self.folder, self.head), stored_vectors(self.folder, self.head)
        # Weights may change under the same name.
        if embedder.dim != self.head.dim or not _same_text(embedder, passages[0], vectors[0]):
            made = f"The index {self.folder} was made with other weights of {self.head.embedder}"
            raise InputError(f"{made}: build it again, into another folder.")
        if self.head.kind == EXACT:
            return PassageIndex(passages, np.asarray(vectors, np.float32))
        return ApproximateIndex(passages, vectors, _read_faiss(self.folder, self.head), rescore=rescore)

    def documents(self, most_characters: int) -> list[Document]:
        """The documents of so many characters, the first ones; the last of them is cut there. Raises InputError."""
        found, left, size = list[Document](), most_characters, self.head.sizes[DOCUMENTS]
        try:
            with (self.folder / DOCUMENTS).open("rb") as lines:
                for line in lines:
                    # What an addition has written so far may end inside a line.
                    size -= len(line)
                    if size < 0 or left <= 0:
                        break
                    name, title, text = json.loads(line)
                    found.append(Document(name, title, text[:left]))
                    left -= len(text)
        except (ValueError, TypeError, OSError) as error:
            raise damaged(self.folder, f"{DOCUMENTS}: {error}") from error
        return found


def _same_text(embedder: Embedder, passage: Passage, vector: HalfVectors) -> bool:
    now = embedder.embed([embedded_text(passage)])[0]
    return float(now @ vector.astype(np.float32)) >= SAME_TEXT_COSINE


def stored_vectors(folder: Path, head: Head) -> HalfVectors:
    """The unit vectors [passages, dim], memory-mapped."""
    return np.memmap(folder / VECTORS, np.dtype("<f2"), "r", shape=(head.passages, head.dim))


def _read_faiss(folder: Path, head: Head) -> Any:
    """The IVF-PQ index, its lists memory-mapped. Its checksum comes first: the library trusts what it reads."""
    require_faiss()
    import faiss

    file = folder / head.faiss_file
    try:
        if checksum(file) != head.checksum:
            raise ValueError(f"{file.name} has another checksum")
        found: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    except (OSError, ValueError, RuntimeError) as error:
        raise damaged(folder, error) from error
    found.nprobe = head.probes
    return found


def checksum(file: Path) -> str:
    """A file's SHA-256. Raises OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class StoredPassages(Sequence[Passage]):
    """The passages of an index, each read when it is asked for. Raises InputError for a line that is damaged."""

    def __init__(self, folder: Path, head: Head) -> None:
        self._folder = folder
        self._lines = np.memmap(folder / PASSAGES, np.uint8, "r", shape=(head.sizes[PASSAGES],))
        self._ends = np.memmap(folder / ENDS, "<u8", "r", shape=(head.passages + 1,))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> Passage: ...
    @overload
    def __getitem__(self, number: slice) -> list[Passage]: ...
    def __getitem__(self, number: int | slice) -> Passage | list[Passage]:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        number = range(len(self))[number]
        line = self._lines[int(self._ends[number]) : int(self._ends[number + 1])].tobytes()
        try:
            return Passage(*json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._folder, f"{PASSAGES}, line {number + 1}") from error


class ApproximateIndex:
    """Passages under an IVF-PQ index. With `rescore` the best candidates are ordered by their own vectors."""

    def __init__(self, passages: Sequence[Passage], vectors: HalfVectors, ivf: Any, *, rescore: bool = True) -> None:
        self.passages, self._vectors, self._ivf, self._rescore = passages, vectors, ivf, rescore

    def search(self, vector: Vectors, top: int) -> list[tuple[int, float]]:
        """As in `SearchIndex`; fewer than `top` where the lists that are probed hold no more.

        Without re-scoring the score is the approximation of the cosine.
        """
        wanted = max(top, CANDIDATES) if self._rescore else top
        scores, numbers = self._ivf.search(vector.reshape(1, -1), min(wanted, len(self.passages)))
        # The library fills up with -1.
        numbers, scores = numbers[0][numbers[0] >= 0], scores[0][numbers[0] >= 0]
        if self._rescore:
            scores = self.vectors_of(numbers) @ vector
        return ranked(numbers, scores)[:top]

    def vectors_of(self, numbers: Sequence[int]) -> Vectors:
        """As in `SearchIndex`."""
        return np.asarray(self._vectors[np.asarray(numbers, np.int64)], np.float32)
