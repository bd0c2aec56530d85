"""The passage index: exact search, and the cache of vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.retrieval import index as module
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Embedder, Vectors
from specrace.retrieval.index import PassageIndex, open_index

if TYPE_CHECKING:
    from tests.retrieval.conftest import RecordingEmbedder


def only_file(folder: Path) -> Path:
    """Return the only file in a cache folder."""
    (file,) = folder.iterdir()
    return file


def first_vector(index: PassageIndex, embedder: Embedder) -> Vectors:
    """Return the vector [dim] of an index's first passage."""
    vector: Vectors = embedder.embed([module.embedded_text(index.passages[0])])[0]
    return vector


def test_search_is_exact_and_ordered(documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path) -> None:
    index = open_index(documents, recorder, tmp_path)
    question = recorder.embed(["How is a violin tuned?"])[0]
    cosines = recorder.embed([module.embedded_text(passage) for passage in index.passages]) @ question
    matches = index.search(question, 99)
    assert [number for number, _ in matches] == list(np.argsort(-cosines))
    assert np.allclose([score for _, score in matches], np.sort(cosines)[::-1], atol=1e-5)
    assert index.search(question, 1) == matches[:1]


def test_reopening_embeds_only_one_text(documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path) -> None:
    first = open_index(documents, recorder, tmp_path)
    recorder.embedded.clear()
    second = open_index(documents, recorder, tmp_path)
    # One text is embedded again, to notice changed weights.
    assert len(recorder.embedded) == 1
    assert second.passages == first.passages
    question = first_vector(first, recorder)
    assert second.search(question, 9) == first.search(question, 9)


def test_a_changed_document_or_embedder_invalidates_the_cache(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    index = open_index(documents, recorder, tmp_path)
    for changed in ([*documents[:2], replace(documents[2], text="A new text.")], documents[:2]):
        recorder.embedded.clear()
        open_index(changed, recorder, tmp_path)
        assert len(recorder.embedded) > 1
    recorder.name, recorder.embedded[:] = "another", []
    open_index(documents, recorder, tmp_path)
    assert len(recorder.embedded) == len(index.passages)


class ReversedEmbedder:
    """Reverses the vectors of another embedder, as if its weights had changed under the same name."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.dim = embedder.dim

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.ascontiguousarray(self._embedder.embed(texts)[:, ::-1])


def test_changed_weights_under_the_same_name_invalidate_the_cache(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    open_index(documents, recorder, tmp_path)
    changed = ReversedEmbedder(recorder)
    index = open_index(documents, changed, tmp_path)
    ((number, score),) = index.search(first_vector(index, changed), 1)
    assert number == 0 and score == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("damage", ["truncated", "half", "garbage", "flipped", "empty", "folder"])
def test_a_broken_cache_is_rebuilt(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, damage: str
) -> None:
    original = open_index(documents, recorder, tmp_path)
    file = only_file(tmp_path)
    content = file.read_bytes()
    if damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        contents = {
            "truncated": content[:-5],
            "half": content[: len(content) // 2],
            "garbage": b"\x80\x04junk",
            "flipped": content[:100] + bytes([content[100] ^ 64]) + content[101:],
            "empty": b"",
        }
        file.write_bytes(contents[damage])
    rebuilt = open_index(documents, recorder, tmp_path)
    question = first_vector(original, recorder)
    assert rebuilt.search(question, 9) == original.search(question, 9)
    if damage != "folder":
        assert only_file(tmp_path).read_bytes() == content


def test_a_cache_folder_that_cannot_be_written_is_ignored(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert open_index(documents, recorder, tmp_path / "file" / "below").passages
    assert open_index(documents, recorder, Path("/proc/nothing")).passages


def test_a_failed_write_leaves_no_file(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    assert open_index(documents, recorder, tmp_path).passages
    assert list(tmp_path.iterdir()) == []


def test_default_folder_follows_the_platform(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    open_index(documents, recorder)
    assert only_file(tmp_path / "xdg" / "specrace").is_file()
    # The specification says that a relative path is ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    open_index(documents, recorder)
    assert only_file(tmp_path / "home" / ".cache" / "specrace").is_file()


def test_only_the_oldest_cache_files_are_deleted(
    documents: list[Document], recorder: RecordingEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHE_FILES", 2)
    (tmp_path / "mine.txt").touch()
    for number, document in enumerate(documents):
        before = set(tmp_path.iterdir())
        open_index([document], recorder, tmp_path)
        (new_file,) = set(tmp_path.iterdir()) - before
        os.utime(new_file, (number, number))
    assert len(list(tmp_path.iterdir())) == 3 and (tmp_path / "mine.txt").exists()
    recorder.embedded.clear()
    open_index([documents[2]], recorder, tmp_path)
    assert len(recorder.embedded) == 1


def test_documents_without_text_are_refused(recorder: RecordingEmbedder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text"):
        open_index([Document("a.md", "a", " ")], recorder, tmp_path)
