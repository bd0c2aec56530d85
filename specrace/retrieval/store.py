"""An index on disk: files that only grow, and a header that says how many bytes of each file are valid.

The folder holds `index.json` (the header), `documents.jsonl`, `passages.jsonl`, the offsets at which its lines end in
`passages.u64`, the unit vectors in `vectors.f16`, and for a large corpus faiss's IVF-PQ index. All files except the
header and the documents are memory-mapped.
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
from specrace.core.files import read_bytes, write_atomically
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import PassageIndex, SearchIndex, gives_vector, rank, require_faiss
from specrace.retrieval.passages import Passage, embedded_text
from specrace.retrieval.rerank import CANDIDATES

FORMAT, VERSION = "specrace-index", 1
HEADER, DOCUMENTS, PASSAGES = "index.json", "documents.jsonl", "passages.jsonl"
ENDS, VECTORS = "passages.u64", "vectors.f16"
EXACT, IVF_PQ = "exact", "ivf-pq"
MAX_HEADER_BYTES = 1_000_000
HINT = "make one with: python -m specrace index DIR --out INDEX"

HalfVectors = npt.NDArray[np.float16]


@dataclass(frozen=True)
class IndexHeader:
    """The header of an index: its settings, sizes and measurements. `sizes`: file name -> number of valid bytes.

    `passage_tokens` and `overlap`: how many tokens a passage has at most, and shares with the one before it; 0 and 0 if
    passages are paragraphs.
    `lists`, `sub_vectors` and `probes` are IVF-PQ's parameters; it was trained when there were `trained_on` passages.
    `recall` is the share of exact search's best five passages that the index also finds, and `unranked_recall` that
    share without re-scoring. Both are measured with one sentence from each of `recall_sample` passages.
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
        """The name of the IVF-PQ index's file; it changes with every addition."""
        return f"passages-{self.passages}.faiss"

    def write(self, folder: Path) -> None:
        """Write the header, which makes the bytes appended to the other files valid."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_atomically(folder / HEADER, json.dumps(content, indent=1, ensure_ascii=False).encode())
        # Readable by all, because another user may serve the index.
        (folder / HEADER).chmod(0o644)

    def describe(self) -> str:
        """How the index searches, and how well, in words."""
        if self.kind == EXACT:
            return "exact search"
        return (
            f"IVF-PQ: {self.lists:,} lists for {self.trained_on:,} passages, {self.probes} probed, "
            f"{self.sub_vectors} sub-vectors; "
            f"recall@5 {self.recall:.2f} ({self.unranked_recall:.2f} before re-scoring) "
            f"on {self.recall_sample} passages' own sentences"
        )


def read_header(folder: Path) -> IndexHeader:
    """Read the header of the index in `folder`. Raises InputError if it is missing, damaged, cut off or not ours."""
    if not (folder / HEADER).is_file():
        raise InputError(f"{folder} holds no index: {HINT}.")
    try:
        content = json.loads(read_bytes(folder / HEADER, MAX_HEADER_BYTES, HINT))
        if (content.pop("format"), content.pop("version")) != (FORMAT, VERSION):
            raise ValueError("another format or version")
        header = IndexHeader(**content)
        _check(folder, header)
    except (ValueError, OSError) as error:
        raise damaged(folder, error) from error
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(folder, f"{HEADER} was written by another program") from error
    return header


def damaged(folder: Path, error: object) -> InputError:
    """The InputError for an index that cannot be used, with the reason."""
    return InputError(f"The index {folder} is damaged or not ours ({error}): build it again, into another folder.")


def _check(folder: Path, header: IndexHeader) -> None:
    """Raise ValueError or OSError for a header with impossible values, or if a file is shorter than the header says."""
    # The header's types are those of the default values.
    default = IndexHeader()
    for header_field in fields(IndexHeader):
        name = header_field.name
        value = getattr(header, name)
        if type(value) is not type(getattr(default, name)) or (isinstance(value, int) and value < 0):
            raise ValueError(f"{name} in {HEADER} is wrong")
    # An offset in ENDS has 8 bytes, a number in VECTORS has 2.
    min_sizes = {ENDS: 8 * (header.passages + 1), VECTORS: 2 * header.dim * header.passages, PASSAGES: 1, DOCUMENTS: 1}
    if (
        set(header.sizes) != set(min_sizes)
        or not (header.passages and header.dim)
        or header.kind not in (EXACT, IVF_PQ)
    ):
        raise ValueError(f"{HEADER} is incomplete")
    for name, size in header.sizes.items():
        if type(size) is not int or size < min_sizes[name] or (name in (ENDS, VECTORS) and size != min_sizes[name]):
            raise ValueError(f"the size of {name} is wrong")
        if (folder / name).stat().st_size < size:
            raise ValueError(f"{name} is cut off")


class StoredIndex:
    """An index in a folder. Raises InputError if it is missing, damaged, cut off or not ours."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.header = folder, read_header(folder)

    def open(self, embedder: Embedder, rescore: bool = True) -> SearchIndex:
        """Open the index for searching, memory-mapped. Raises InputError.

        With `rescore`, an approximate index orders its best candidates by their stored vectors.
        """
        # Read again: an addition may have replaced the file of an approximate index.
        self.header = read_header(self.folder)
        passages, vectors = StoredPassages(self.folder, self.header), stored_vectors(self.folder, self.header)
        first_text, first_vector = embedded_text(passages[0]), vectors[0].astype(np.float32)
        # The first passage stands for all: if the weights have changed, its vector has, too.
        if embedder.dim != self.header.dim or not gives_vector(embedder, first_text, first_vector):
            problem = f"The index {self.folder} was made with other weights of {self.header.embedder}"
            raise InputError(f"{problem}: build it again, into another folder.")
        if self.header.kind == EXACT:
            return PassageIndex(passages, np.asarray(vectors, np.float32))
        return ApproximateIndex(passages, vectors, _read_faiss(self.folder, self.header), rescore=rescore)

    def documents(self, max_characters: int) -> list[Document]:
        """The first documents, up to `max_characters` in all; the last one is cut at that limit. Raises InputError."""
        documents = list[Document]()
        characters_left, bytes_left = max_characters, self.header.sizes[DOCUMENTS]
        try:
            with (self.folder / DOCUMENTS).open("rb") as lines:
                for line in lines:
                    # Beyond the size in the header, an addition that is under way may have written part of a line.
                    bytes_left -= len(line)
                    if bytes_left < 0 or characters_left <= 0:
                        break
                    name, title, text = json.loads(line)
                    documents.append(Document(name, title, text[:characters_left]))
                    characters_left -= len(text)
        except (ValueError, TypeError, OSError) as error:
            raise damaged(self.folder, f"{DOCUMENTS}: {error}") from error
        return documents


def stored_vectors(folder: Path, header: IndexHeader) -> HalfVectors:
    """The index's unit vectors [passages, dim], memory-mapped."""
    return np.memmap(folder / VECTORS, np.dtype("<f2"), "r", shape=(header.passages, header.dim))


def _read_faiss(folder: Path, header: IndexHeader) -> Any:
    """Open the IVF-PQ index, its lists memory-mapped. Its checksum is compared first, because faiss trusts the file."""
    require_faiss()
    import faiss

    file = folder / header.faiss_file
    try:
        if checksum(file) != header.checksum:
            raise ValueError(f"{file.name} has another checksum")
        ivf: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    except (OSError, ValueError, RuntimeError) as error:
        raise damaged(folder, error) from error
    ivf.nprobe = header.probes
    return ivf


def checksum(file: Path) -> str:
    """A file's SHA-256. Raises OSError."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class StoredPassages(Sequence[Passage]):
    """The passages of an index, each read from disk on access. Access raises InputError for a damaged line."""

    def __init__(self, folder: Path, header: IndexHeader) -> None:
        self._folder = folder
        self._lines = np.memmap(folder / PASSAGES, np.uint8, "r", shape=(header.sizes[PASSAGES],))
        self._ends = np.memmap(folder / ENDS, "<u8", "r", shape=(header.passages + 1,))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> Passage: ...
    @overload
    def __getitem__(self, number: slice) -> list[Passage]: ...
    def __getitem__(self, number: int | slice) -> Passage | list[Passage]:
        if isinstance(number, slice):
            return [self[index] for index in range(len(self))[number]]
        # A range understands negative numbers, and raises IndexError beyond its ends.
        number = range(len(self))[number]
        line = self._lines[int(self._ends[number]) : int(self._ends[number + 1])].tobytes()
        try:
            return Passage(*json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._folder, f"{PASSAGES}, line {number + 1}") from error


class ApproximateIndex:
    """Approximate search over passages with an IVF-PQ index.

    With `rescore`, the best candidates are ordered by the cosine of their stored vectors. Without it, they are ordered
    by IVF-PQ's approximation of the cosine.
    """

    def __init__(self, passages: Sequence[Passage], vectors: HalfVectors, ivf: Any, *, rescore: bool = True) -> None:
        self.passages = passages
        self._vectors, self._ivf, self._rescore = vectors, ivf, rescore

    def search(self, vector: Vectors, top: int) -> list[tuple[int, float]]:
        """The number and score of the best `top` passages; fewer if the probed lists hold fewer."""
        wanted = max(top, CANDIDATES) if self._rescore else top
        scores, numbers = self._ivf.search(vector.reshape(1, -1), min(wanted, len(self.passages)))
        # faiss returns the number -1 for missing results.
        is_result = numbers[0] >= 0
        numbers, scores = numbers[0][is_result], scores[0][is_result]
        if self._rescore:
            scores = self.vectors_of(numbers) @ vector
        return rank(numbers, scores)[:top]

    def vectors_of(self, numbers: Sequence[int]) -> Vectors:
        return np.asarray(self._vectors[np.asarray(numbers, np.int64)], np.float32)
