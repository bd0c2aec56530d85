from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import load_embedder
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.passages import split_passages
from specrace.retrieval.retriever import Retriever
from specrace.ui.uploads import MAX_FILES, SESSIONS_KEPT, SessionBenches, read_uploads
from specrace.workbench import Workbench


def put(folder: Path, name: str, text: str | bytes) -> str:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def test_uploads_become_documents(tmp_path: Path) -> None:
    files = [put(tmp_path, "a.md", "# Owls\nOwls see at night."), put(tmp_path, "b.txt", "Bees dance.")]
    documents = read_uploads(files)
    assert [(each.name, each.title) for each in documents] == [("a.md", "Owls"), ("b.txt", "b")]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("page.html", "<b>x</b>", "not a .md or .txt file"),
        ("a.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("a.txt", b"a\x00b", "NUL"),
        ("a.txt", "  \n ", "No text"),
        ("a.txt", "x" * 2_000_001, "larger than 2 MB"),
    ],
)
def test_bad_uploads_are_refused_without_the_servers_paths(
    tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_uploads([put(tmp_path, name, content)])
    assert str(tmp_path) not in str(caught.value)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = [put(tmp_path, f"{number}.txt", "Some text.") for number in range(MAX_FILES + 1)]
    assert len(read_uploads(files[:-1])) == MAX_FILES
    with pytest.raises(InputError, match="at most 20"):
        read_uploads(files)


@pytest.fixture(scope="module")
def shared() -> Workbench:
    embedder = load_embedder()
    documents = [Document("bread.md", "Bread", "Yeast makes bread rise.")]
    passages = split_passages(documents[0])
    index = PassageIndex(passages, embedder.embed([each.text for each in passages]))
    target: Any = SimpleNamespace(name="stands aside: nothing here is decoded")
    return Workbench(target, documents, Retriever(index, embedder), embedder)


def test_a_session_s_documents_leave_the_shared_index_alone(tmp_path: Path, shared: Workbench) -> None:
    benches = SessionBenches()
    file = put(tmp_path, "owls.md", "Owls hear a mouse under the snow.")
    own = benches.get("session", shared, [file])
    assert own.target is shared.target
    assert [hit.passage.document for hit in own.retrieve("What do owls hear?")] == ["owls.md"]
    assert [hit.passage.document for hit in shared.retrieve("What do owls hear?")] == ["bread.md"]
    assert benches.get("session", shared, []) is shared


def test_a_session_is_indexed_again_only_when_its_documents_change(tmp_path: Path, shared: Workbench) -> None:
    benches = SessionBenches()
    file = put(tmp_path, "owls.md", "Owls hear well.")
    first = benches.get("session", shared, [file])
    assert benches.get("session", shared, [file]) is first
    put(tmp_path, "owls.md", "Owls see well.")
    assert benches.get("session", shared, [file]) is not first


def test_sessions_are_forgotten(tmp_path: Path, shared: Workbench) -> None:
    benches = SessionBenches()
    file = put(tmp_path, "owls.md", "Owls hear well.")
    for number in range(SESSIONS_KEPT + 3):
        benches.get(f"session {number}", shared, [file])
    assert len(benches) == SESSIONS_KEPT
    benches.forget(f"session {SESSIONS_KEPT}")
    benches.forget("somebody else")
    assert len(benches) == SESSIONS_KEPT - 1
