"""Reads a visitor's uploaded files into documents and passages. This runs in a helper process (`helper/process.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document, stream_documents
from specrace.retrieval.limits import UPLOADS
from specrace.retrieval.passages import Passage, split_passages
from specrace.retrieval.readers.kinds import KIND_NAMES
from specrace.retrieval.suggestions import suggest_questions
from specrace.ui.helper.time_limit import time_limit

# How many questions about the documents are made: as many as the page's list of questions may take. Its example buttons
# show the first NUM_EXAMPLES.
NUM_EXAMPLES, NUM_SUGGESTED = 4, 20


@dataclass(frozen=True)
class Upload:
    """The documents that were read from a visit's uploaded files.

    `skipped`: a sentence for each file left out. `examples`: questions about the documents. `content` is JSON:
    {"documents": [[name, title, text], ...], "passages": [[index of the document, start, end, place, code], ...]},
    where the last four are fields of `Passage`.
    """

    files: tuple[str, ...]
    num_passages: int
    skipped: tuple[str, ...]
    examples: tuple[str, ...]
    content: bytes

    def parse(self) -> tuple[list[Document], list[Passage]]:
        """The documents and their passages."""
        content = json.loads(self.content)
        documents = [Document(*row) for row in content["documents"]]
        passages = []
        for index, start, end, place, code in content["passages"]:
            document = documents[index]
            passages.append(Passage(document.name, document.title, start, end, document.text[start:end], place, code))
        return documents, passages


def read_uploads(_: str, files: bytes) -> bytes:
    """Read `files`, a JSON list of paths, into two lines of JSON: an object with `num_passages`, `skipped` and
    `examples` of an `Upload`, then its `content`. The first argument, which all tasks of a helper have, is not used.

    Raises InputError, which does not show this machine's paths, if no file can be used.
    """
    skipped: list[str] = []
    folders = {f"{Path(file).parent.as_posix()}/" for file in json.loads(files)}

    def without_folders(sentence: str) -> str:
        for folder in folders:
            sentence = sentence.replace(folder, "")
        return sentence

    paths = [Path(file) for file in json.loads(files)]
    try:
        documents = list(
            stream_documents(paths, on_skip=lambda sentence: skipped.append(without_folders(sentence)), limits=UPLOADS)
        )
    except InputError as error:
        raise InputError(without_folders(str(error))) from None
    split = _split(documents, skipped)
    if not split:
        raise InputError(" ".join(skipped) or f"No text was found in the files: give a {KIND_NAMES} file.")
    documents = [document for document, _ in split]
    passages = [
        (index, passage.start, passage.end, passage.place, passage.code)
        for index, (_, pieces) in enumerate(split)
        for passage in pieces
    ]
    examples = _suggest(documents)
    facts = {"num_passages": len(passages), "skipped": skipped, "examples": examples}
    content = {
        "documents": [(document.name, document.title, document.text) for document in documents],
        "passages": passages,
    }
    return f"{json.dumps(facts)}\n{json.dumps(content)}".encode()


def _split(documents: Sequence[Document], skipped: list[str]) -> list[tuple[Document, list[Passage]]]:
    """The documents with their passages; one that takes too long is left out, with a sentence in `skipped`."""
    split = []
    for document in documents:
        try:
            with time_limit(UPLOADS.seconds):
                split.append((document, list(split_passages(document))))
        except TimeoutError:
            skipped.append(
                f"{document.name} takes more than {UPLOADS.seconds:g} seconds to split: give a smaller file."
            )
    return split


def _suggest(documents: Sequence[Document]) -> list[str]:
    """Questions about the documents; none if it takes too long to make them."""
    try:
        with time_limit(UPLOADS.seconds):
            return suggest_questions(documents, NUM_SUGGESTED)
    except TimeoutError:
        return []
