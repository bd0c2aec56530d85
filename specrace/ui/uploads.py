"""A visitor's own documents: checked, indexed in memory, and forgotten when the visitor leaves."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document, stream_documents
from specrace.retrieval.index import PassageIndex, embedded_text
from specrace.retrieval.limits import UPLOADS
from specrace.retrieval.passages import Passage, split_passages
from specrace.retrieval.readers.kinds import READ
from specrace.retrieval.suggestions import suggest_questions

if TYPE_CHECKING:
    from specrace.workbench import Workbench

MAX_FILES = 20
MAX_BYTES = UPLOADS.total_bytes
SESSIONS_KEPT = 16
EXAMPLES = 4
# The embedder's own batch size: a stop takes effect after one batch.
BATCH = 32


@dataclass(frozen=True)
class Upload:
    """Uploaded files after reading. `skipped` has a sentence for each file left out, `examples` are questions about
    the others. `content` is JSON:
    {"documents": [[name, title, text], ...], "passages": [[index of the document, start, end, place], ...]}.
    """

    files: tuple[str, ...]
    num_passages: int
    skipped: tuple[str, ...]
    examples: tuple[str, ...]
    content: bytes

    def parse(self) -> tuple[list[Document], list[Passage]]:
        """The documents and their passages."""
        found = json.loads(self.content)
        documents = [Document(*each) for each in found["documents"]]
        passages = []
        for number, start, end, place in found["passages"]:
            own = documents[number]
            passages.append(Passage(own.name, own.title, start, end, own.text[start:end], place))
        return documents, passages


def read_uploads(_: str, files: bytes) -> bytes:
    """Two lines of JSON for an `Upload`: its other fields, then the content. `files`: paths as JSON.

    Raises InputError, without this machine's paths, where none can be used.
    """
    skipped: list[str] = []
    folders = {f"{Path(file).parent.as_posix()}/" for file in json.loads(files)}

    def public(sentence: str) -> str:
        for folder in folders:
            sentence = sentence.replace(folder, "")
        return sentence

    paths = [Path(file) for file in json.loads(files)]
    try:
        # Each sentence is made public before a message of many is cut.
        documents = list(
            stream_documents(paths, skip=lambda sentence: skipped.append(public(sentence)), limits=UPLOADS)
        )
    except InputError as error:
        raise InputError(public(str(error))) from None
    if not documents:
        raise InputError(" ".join(skipped) or f"No text was found in the files: give a {READ} file.")
    passages = [
        (number, each.start, each.end, each.place)
        for number, own in enumerate(documents)
        for each in split_passages(own)
    ]
    examples = suggest_questions(documents, EXAMPLES)
    head = {"num_passages": len(passages), "skipped": skipped, "examples": examples}
    content = {"documents": [(each.name, each.title, each.text) for each in documents], "passages": passages}
    return f"{json.dumps(head)}\n{json.dumps(content)}".encode()


class VisitWorkbenches:
    """The workbenches on uploaded documents, one a session; the least recently used go when there are many.

    `read` is `read_uploads`, wherever it runs.
    """

    def __init__(self, read: Callable[[bytes], bytes]) -> None:
        self._read = read
        self._sessions: OrderedDict[str, tuple[Upload, Workbench | None]] = OrderedDict()
        # The latest reading of each session, until it ends or the visitor leaves.
        self._reading: dict[str, object] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def read(self, session: str, files: Sequence[str]) -> Upload | None:
        """The session's files, read; None without any. Raises InputError where none can be used."""
        known = self.known(session)
        # Gradio keeps files in folders named after their content.
        if known is not None and known.files == tuple(files):
            return known
        self.forget(session)
        if not files:
            return None
        if len(files) > MAX_FILES:
            raise InputError(f"{len(files)} files were uploaded; upload at most {MAX_FILES}.")
        reading = self._reading[session] = object()
        try:
            head, _, content = self._read(json.dumps(list(files)).encode()).partition(b"\n")
        finally:
            # A visitor who has left meanwhile is forgotten.
            stays = self._reading.get(session) is reading
            if stays:
                del self._reading[session]
        found = json.loads(head)
        upload = Upload(tuple(files), found["num_passages"], tuple(found["skipped"]), tuple(found["examples"]), content)
        if stays:
            self._keep(session, upload, None)
        return upload

    def open(self, session: str, shared: Workbench, upload: Upload | None) -> Generator[str, None, Workbench]:
        """The session's workbench on its upload, or the shared one. Yields its progress before every batch.

        The embedder runs on the caller's thread, the one that races: in parallel it would take processors from a race,
        and the helper's process would need a second copy of it in memory. Others may race between batches.
        """
        if upload is None:
            return shared
        known, workbench = self._sessions.get(session, (None, None))
        if workbench is None or known != upload:
            workbench = yield from _index(shared, upload)
        if self.known(session) == upload:
            self._keep(session, upload, workbench)
        return workbench

    def known(self, session: str) -> Upload | None:
        """What the session has uploaded, as far as it is read."""
        return self._sessions.get(session, (None, None))[0]

    def forget(self, session: str) -> None:
        """The visitor has left, or other files are read."""
        self._reading.pop(session, None)
        self._sessions.pop(session, None)

    def _keep(self, session: str, upload: Upload, workbench: Workbench | None) -> None:
        with self._lock:
            self._sessions[session] = (upload, workbench)
            self._sessions.move_to_end(session)
            while len(self._sessions) > SESSIONS_KEPT:
                self._sessions.popitem(last=False)


def _index(shared: Workbench, upload: Upload) -> Generator[str, None, Workbench]:
    documents, passages = upload.parse()
    texts, vectors = [embedded_text(passage) for passage in passages], []
    for first in range(0, len(texts), BATCH):
        yield f"Indexing your documents: {first:,} of {len(texts):,} passages …"
        vectors.append(shared.embedder.embed(texts[first : first + BATCH]))
    return shared.on(documents, PassageIndex(passages, np.concatenate(vectors)))
