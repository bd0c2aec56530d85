"""A visitor's own documents: checked, indexed in memory, and forgotten when the visitor leaves."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document, read_documents

if TYPE_CHECKING:
    from specrace.workbench import Workbench

MAX_FILES = 20
MAX_BYTES = 2_000_000
SESSIONS_KEPT = 16


def read_uploads(files: Sequence[str]) -> list[Document]:
    """The documents in uploaded files. Raises InputError, without this machine's paths, for what cannot be used."""
    if len(files) > MAX_FILES:
        raise InputError(f"{len(files)} files were uploaded; upload at most {MAX_FILES}.")
    try:
        return read_documents([Path(file) for file in files], max_files=MAX_FILES, max_bytes=MAX_BYTES)
    except InputError as error:
        message = str(error)
        for file in files:
            message = message.replace(f"{Path(file).parent.as_posix()}/", "")
        raise InputError(message) from error


class SessionBenches:
    """The workbenches on uploaded documents, one a session; the least recently used go when there are many."""

    def __init__(self) -> None:
        self._benches: OrderedDict[str, tuple[str, Workbench]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._benches)

    def get(self, session: str, shared: Workbench, files: Sequence[str]) -> Workbench:
        """The session's workbench on `files`, made anew when their contents changed; the shared one without files."""
        if not files:
            return shared
        documents = read_uploads(files)
        digest = hashlib.sha256(repr([(each.name, each.text) for each in documents]).encode("utf-8")).hexdigest()
        with self._lock:
            known = self._benches.get(session)
        bench = known[1] if known and known[0] == digest else shared.on(documents)
        with self._lock:
            self._benches[session] = (digest, bench)
            self._benches.move_to_end(session)
            while len(self._benches) > SESSIONS_KEPT:
                self._benches.popitem(last=False)
        return bench

    def forget(self, session: str) -> None:
        """The visitor has left."""
        with self._lock:
            self._benches.pop(session, None)
