"""Workbenches on visitors' own documents, which are indexed in memory and forgotten when the visitor leaves.

A workbench is a model, documents and their retriever, ready to race.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from specrace.core.errors import InputError
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.passages import embedded_text, fit_passages
from specrace.ui.helper.upload_reader import Upload
from specrace.ui.visitor_limits import MAX_UPLOAD_FILES

if TYPE_CHECKING:
    from specrace.workbench import Workbench

# Each may hold 2 MB of text and its vectors, a few MB; a guess.
MAX_VISITS = 16
# The embedder's own batch size. Between batches a race may be stopped, and other races may go first.
BATCH_SIZE = 32


class VisitWorkbenches:
    """Each visit's workbench on its uploaded documents; beyond MAX_VISITS the least recently used one is dropped.

    `read(files, address, visit)` runs `upload_reader.read_uploads`, as `OtherWork.read_uploads` does.
    """

    def __init__(self, read: Callable[[bytes, str | None, str], bytes]) -> None:
        self._read = read
        self._visits: OrderedDict[str, tuple[Upload, Workbench | None]] = OrderedDict()
        # Visit -> an object that identifies its latest reading, until that ends or the visitor leaves.
        self._reading: dict[str, object] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._visits)

    def read(
        self, visit: str, files: Sequence[str], address: str | None = None, call: str | None = None
    ) -> Upload | None:
        """Read the visit's files; returns None if there are none. Raises InputError if no file can be used.

        The visits from one `address` take turns with the helper processes. A program's calls share a visit; each of
        them takes turns by its own key, `call`.
        """
        upload = self.upload_of(visit)
        # Gradio names a file's folder after its content, so equal paths are equal files.
        if upload is not None and upload.files == tuple(files):
            return upload
        self.forget(visit)
        if not files:
            return None
        if len(files) > MAX_UPLOAD_FILES:
            raise InputError(f"{len(files)} files were uploaded; upload at most {MAX_UPLOAD_FILES}.")
        reading = self._reading[visit] = object()
        try:
            answer = self._read(json.dumps(list(files)).encode(), address, call or visit)
        finally:
            # Nothing is stored if the visitor has left, or has sent other files, meanwhile.
            is_latest = self._reading.get(visit) is reading
            if is_latest:
                del self._reading[visit]
        first_line, _, content = answer.partition(b"\n")
        facts = json.loads(first_line)
        upload = Upload(tuple(files), facts["num_passages"], tuple(facts["skipped"]), tuple(facts["examples"]), content)
        if is_latest:
            self._store(visit, upload, None)
        return upload

    def open(self, visit: str, shared: Workbench, upload: Upload | None) -> Generator[str, None, Workbench]:
        """The visit's workbench on its upload, or `shared` without one. Yields the progress before every batch.

        The embedder runs on the caller's thread, which also races: on another thread it would slow down the race, and
        in a helper process it would be in memory twice. Other visitors may race between batches.
        """
        if upload is None:
            return shared
        indexed, workbench = self._visits.get(visit, (None, None))
        if workbench is None or indexed != upload:
            workbench = yield from _index(shared, upload)
        if self.upload_of(visit) == upload:
            self._store(visit, upload, workbench)
        return workbench

    def upload_of(self, visit: str) -> Upload | None:
        """The visit's upload, if its files have been read."""
        return self._visits.get(visit, (None, None))[0]

    def num_passages(self, visit: str) -> int | None:
        """How many passages the visit's documents have; None if it has no documents.

        Before the first race this may be too low: passages that are too long for the embedder are not split yet.
        """
        upload, workbench = self._visits.get(visit, (None, None))
        if workbench is not None:
            return workbench.num_passages
        return upload.num_passages if upload else None

    def forget(self, visit: str) -> None:
        """Drop the visit's upload and workbench. If its files are being read, the result will not be stored."""
        self._reading.pop(visit, None)
        self._visits.pop(visit, None)

    def _store(self, visit: str, upload: Upload, workbench: Workbench | None) -> None:
        with self._lock:
            self._visits[visit] = (upload, workbench)
            self._visits.move_to_end(visit)
            while len(self._visits) > MAX_VISITS:
                self._visits.popitem(last=False)


def _index(shared: Workbench, upload: Upload) -> Generator[str, None, Workbench]:
    """Index an upload. Yields the progress before every batch, and returns a workbench on the upload."""
    documents, parsed = upload.parse()
    limits = shared.token_limits
    passages = [
        passage
        for _, group in groupby(parsed, lambda passage: passage.document)
        for passage in fit_passages(list(group), limits)
    ]
    texts, vectors = [embedded_text(passage) for passage in passages], []
    for start in range(0, len(texts), BATCH_SIZE):
        yield f"Indexing your documents: {start:,} of {len(texts):,} passages …"
        vectors.append(shared.embedder.embed(texts[start : start + BATCH_SIZE]))
    return shared.with_documents(documents, PassageIndex(passages, np.concatenate(vectors)))
