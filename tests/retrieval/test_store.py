"""Indexes on disk: searches, additions, interruptions, and broken files."""

from __future__ import annotations

import json
import os
import shutil
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specrace.core.errors import InputError
from specrace.retrieval import build as module
from specrace.retrieval.build import add_to_index, build_index
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import Vectors
from specrace.retrieval.index import open_index
from specrace.retrieval.passages import split_passages
from specrace.retrieval.store import IndexHeader, StoredIndex
from tests.retrieval.words import WordEmbedder, generate_documents

EMBEDDER = WordEmbedder(dim=8)
# More characters than the documents of any index here have.
MAX_CHARACTERS = 10**9
# A generated passage has 20 words.
split = partial(split_passages, max_words=20)


def build(folder: Path, documents: Any, embedder: Any = EMBEDDER) -> IndexHeader:
    """Build an index of these documents."""
    return build_index(documents, embedder, folder, split, header=IndexHeader())


def search(folder: Path, question: str, top: int = 5) -> list[tuple[str, float]]:
    """(text, score) of the best passages in a stored index."""
    index = StoredIndex(folder).open(EMBEDDER)
    matches = index.search(EMBEDDER.embed([question])[0], top)
    return [(index.passages[number].text, score) for number, score in matches]


@pytest.fixture(scope="module", autouse=True)
def _quick_training() -> Iterator[None]:
    """Make training quick: few sub-vectors, and short lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SUB_VECTORS", 2)
        # With short lists there are more of them than a search probes.
        patch.setattr(module, "PASSAGES_PER_LIST", 256)
        yield


@pytest.fixture
def small_index(tmp_path: Path) -> Path:
    """An exact index of 50 passages."""
    folder = tmp_path / "small_index"
    build(folder, generate_documents(5, 10))
    return folder


@pytest.fixture(scope="module")
def large_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An approximate index: 10,300 passages, since fewer than 10,000 are searched exactly. No test may change it."""
    folder = tmp_path_factory.mktemp("indexes") / "large_index"
    build(folder, generate_documents(103, 100))
    return folder


def test_an_index_keeps_the_code_in_passages(tmp_path: Path) -> None:
    text = "# Owls\nsee()"
    build(tmp_path / "index", [Document("a.py", "a", text, code=((0, len(text)),)), Document("b.md", "b", "Bees.")])
    passages = StoredIndex(tmp_path / "index").open(EMBEDDER).passages
    assert [[tuple(span) for span in passage.code] for passage in passages] == [[(0, len(text))], []]


def test_a_small_index_is_exact_and_holds_every_document(
    tmp_path: Path, small_index: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    documents = list(generate_documents(5, 10))
    stored, in_memory = StoredIndex(small_index), open_index(documents, EMBEDDER, tmp_path / "cache")
    index = stored.open(EMBEDDER)
    passages = [passage for document in documents for passage in split(document)]
    assert (stored.header.kind, stored.header.passages, stored.header.documents) == ("exact", 50, 5)
    assert list(index.passages) == passages == index.passages[:] and index.passages[-1] == passages[-1]
    assert stored.documents(MAX_CHARACTERS) == documents
    assert [document.text for document in stored.documents(700)] == [documents[0].text[:700]]
    question = EMBEDDER.embed([passages[7].text])[0]
    cosines = EMBEDDER.embed([f"{passage.title}\n{passage.text}" for passage in passages]) @ question
    matches = index.search(question, 9)
    assert [number for number, _ in matches] == list(np.argsort(-cosines)[:9]) and matches[0][0] == 7
    assert np.allclose([score for _, score in matches], np.sort(cosines)[::-1][:9], atol=2e-3)
    assert in_memory.passages and capfd.readouterr() == ("", "")


def test_passages_and_unusual_characters_survive_storage(tmp_path: Path) -> None:
    odd_document = Document("\ud800.md", "\u2028", "# Ärger\n\nw1 \udcff w2 \x85 你好")
    build(tmp_path / "odd", [odd_document])
    stored = StoredIndex(tmp_path / "odd")
    assert stored.documents(MAX_CHARACTERS) == [odd_document] and list(stored.open(EMBEDDER).passages) == split(
        odd_document
    )


def test_a_large_index_is_approximate_accurate_and_quiet(large_index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    header = StoredIndex(large_index).header
    # At 256 passages a list, 10,300 passages would fill 40 lists; this is rounded down to a power of two.
    assert (header.kind, header.lists, header.sub_vectors, header.probes) == ("ivf-pq", 32, 2, 16)
    assert header.recall >= 0.9 and header.recall_sample == 200 and header.unranked_recall <= header.recall
    text = StoredIndex(large_index).open(EMBEDDER).passages[4321].text
    assert search(large_index, text)[0] == (text, pytest.approx(1.0, abs=0.05))
    vector = EMBEDDER.embed([text])[0]
    unranked = StoredIndex(large_index).open(EMBEDDER, rescore=False).search(vector, 5)
    assert len(unranked) == 5 and unranked != StoredIndex(large_index).open(EMBEDDER).search(vector, 5)
    # The probed lists hold fewer passages.
    assert 100 < len(search(large_index, text, 10_000)) < 10_000
    assert capfd.readouterr().err == ""


def test_added_passages_are_found_without_retraining(
    large_index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(large_index, folder)
    before, opened = StoredIndex(folder).header, StoredIndex(folder).open(EMBEDDER)
    question = EMBEDDER.embed(["w5 w6 w7"])[0]
    matches = opened.search(question, 5)
    # Training would fail now.
    monkeypatch.setattr(module, "_train", None)
    new_documents = list(generate_documents(3, 10, seed=9))
    header = add_to_index(new_documents, EMBEDDER, folder, split)
    assert (header.passages, header.documents, header.lists) == (10_330, 106, before.lists)
    for passage in split(new_documents[2]):
        assert passage.text in [text for text, _ in search(folder, passage.text)]
    # An index opened before the addition still searches the old passages.
    assert opened.search(question, 5) == matches and len(opened.passages) == 10_300
    assert sorted(file.name for file in folder.glob("*.faiss")) == ["passages-10330.faiss"]
    # Documents that the index has already are not added again.
    header_after_repeat = add_to_index([*new_documents, *generate_documents(1, 100)], EMBEDDER, folder, split)
    assert header_after_repeat == header


def test_a_small_index_grows_into_a_large_one_quietly(small_index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    header = add_to_index(generate_documents(100, 100, seed=1), EMBEDDER, small_index, split)
    assert (header.kind, header.passages, header.lists) == ("ivf-pq", 10_050, 32)
    text = split(next(iter(generate_documents(1, 10))))[3].text
    assert search(small_index, text)[0][0] == text
    assert capfd.readouterr() == ("", "")


class InterruptedEmbedder(WordEmbedder):
    """Interrupts the third batch, as Ctrl-C would."""

    calls = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return super().embed(texts)


def test_an_interruption_leaves_the_old_index_or_none(
    tmp_path: Path, small_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 16)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "new", generate_documents(9, 9), InterruptedEmbedder(8))
    assert list(tmp_path.iterdir()) == [small_index]
    before, matches = StoredIndex(small_index).header, search(small_index, "w1 w2 w3")
    with pytest.raises(KeyboardInterrupt):
        add_to_index(generate_documents(9, 9, seed=1), InterruptedEmbedder(8), small_index, split)
    assert (small_index / "passages.jsonl").stat().st_size > before.sizes["passages.jsonl"]
    assert StoredIndex(small_index).header == before and search(small_index, "w1 w2 w3") == matches
    assert add_to_index(generate_documents(9, 9, seed=1), EMBEDDER, small_index, split).passages == 50 + 81
    text = split(next(iter(generate_documents(1, 9, seed=1))))[0].text
    assert search(small_index, text)[0][0] == text


def test_a_partly_written_addition_hides_no_document(small_index: Path) -> None:
    """An addition that is under way may have written part of a line."""
    stored = StoredIndex(small_index)
    documents = stored.documents(MAX_CHARACTERS)
    with (small_index / "documents.jsonl").open("ab") as stream:
        stream.write(b'["half", "a li')
    assert stored.documents(MAX_CHARACTERS) == documents and len(documents) == 5


def test_two_additions_cannot_run_at_the_same_time(small_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is refused while the first runs, and also if the first ends after the second has opened the index."""
    pytest.importorskip("fcntl")

    def add(seed: int, embedder: Any = EMBEDDER) -> IndexHeader:
        return add_to_index(generate_documents(2, 4, seed=seed), embedder, small_index, split)

    class AddingEmbedder(WordEmbedder):
        """Tries a second addition during every batch, as another process would."""

        def embed(self, texts: Sequence[str]) -> Vectors:
            if len(texts) > 1:
                with pytest.raises(InputError, match="Another process is adding to"):
                    add(2)
            return super().embed(texts)

    # Five documents were there, and each addition that succeeds adds two.
    assert add(1, AddingEmbedder(8)).documents == 7
    original_open = StoredIndex.open

    def open_then_add(stored: StoredIndex, embedder: Any) -> Any:
        index = original_open(stored, embedder)
        monkeypatch.setattr(StoredIndex, "open", original_open)
        add(2)
        return index

    monkeypatch.setattr(StoredIndex, "open", open_then_add)
    with pytest.raises(InputError, match="has just added"):
        add(3)
    assert add(3).documents == 11 and len(StoredIndex(small_index).documents(MAX_CHARACTERS)) == 11


def test_each_version_of_a_document_is_indexed_once(small_index: Path) -> None:
    versions = [Document("README.md", "", f"Version {number} of the words.") for number in (1, 2)]
    for version in versions * 2:
        add_to_index([version], EMBEDDER, small_index, split)
    # Five documents were there before.
    assert StoredIndex(small_index).header.documents == 7


def test_another_user_may_read_an_index(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        build(tmp_path / "small_index", generate_documents(5, 10))
    finally:
        os.umask(before)
    small_index = tmp_path / "small_index"
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in [small_index, *small_index.iterdir()])


def test_indexed_documents_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 16)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    max_alive = 0

    def watched_documents() -> Iterator[Document]:
        nonlocal max_alive
        for document in generate_documents(60, 4):
            alive.add(document)
            max_alive = max(max_alive, len(alive))
            yield document

    assert build(tmp_path / "index", watched_documents()).documents == 60
    # A batch of 16 passages holds four documents.
    assert max_alive <= 4


def damage(folder: Path, name: str, change: Any) -> None:
    """Rewrite a file of an index by this function of its bytes."""
    file = folder / name
    file.write_bytes(change(file.read_bytes()))


def rewrite(**values: Any) -> Any:
    """A function that changes these values in the bytes of a JSON object."""
    return lambda content: json.dumps(json.loads(content) | values).encode()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, lambda content: content[:-3]) for name in ("passages.jsonl", "passages.u64", "vectors.f16")),
        ("documents.jsonl", lambda _: b""),
        ("index.json", lambda content: content[:100]),
        ("index.json", lambda _: b"[" * 100_000),
        ("index.json", lambda _: b"\xff"),
        ("index.json", lambda _: b"[1]"),
        ("index.json", lambda _: b'{"a": 1}'),
        ("index.json", rewrite(version=99)),
        ("index.json", rewrite(passages=-1)),
        ("index.json", rewrite(passages=10**18)),
        ("index.json", rewrite(dim="8")),
        ("index.json", rewrite(kind="hnsw")),
        ("index.json", rewrite(kind="ivf-pq", checksum="0")),
        ("index.json", rewrite(sizes={})),
        ("index.json", rewrite(more=1)),
        ("passages.jsonl", lambda content: b"x" * len(content)),
        ("passages.jsonl", lambda content: content[: len(content) // 2]),
    ],
)
def test_a_broken_index_is_refused_in_one_sentence(small_index: Path, name: str, change: Any) -> None:
    damage(small_index, name, change)
    with pytest.raises(InputError, match=r"^The index .*small_index is damaged or not ours \(.*\): build it again"):
        StoredIndex(small_index).open(EMBEDDER)


def test_a_broken_faiss_index_is_refused(large_index: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(large_index, folder)
    file = folder / StoredIndex(folder).header.faiss_file
    content = file.read_bytes()
    for broken in (content[:-9], content[: len(content) // 2], content[:50] + bytes(8) + content[58:], b""):
        file.write_bytes(broken)
        with pytest.raises(InputError, match="checksum"):
            StoredIndex(folder).open(EMBEDDER)
    file.unlink()
    with pytest.raises(InputError, match="damaged"):
        StoredIndex(folder).open(EMBEDDER)


def test_damaged_documents_are_refused(small_index: Path) -> None:
    damage(small_index, "documents.jsonl", lambda content: b"x" * len(content))
    with pytest.raises(InputError, match=r"documents\.jsonl"):
        StoredIndex(small_index).documents(MAX_CHARACTERS)
    with pytest.raises(InputError, match=r"damaged or not ours \(documents\.jsonl"):
        add_to_index(generate_documents(1, 1), EMBEDDER, small_index, split)


def test_another_embedder_is_refused(small_index: Path) -> None:
    for embedder in (WordEmbedder(8, seed=1), WordEmbedder(16)):
        with pytest.raises(InputError, match="other weights"):
            StoredIndex(small_index).open(embedder)
        with pytest.raises(InputError, match="other weights"):
            add_to_index(generate_documents(1, 1), embedder, small_index, split)


def test_existing_and_missing_folders_are_refused(tmp_path: Path, small_index: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        build(small_index, generate_documents(1, 1))
    with pytest.raises(InputError, match="hold no text"):
        build(tmp_path / "none", [])
    with pytest.raises(InputError, match="cannot be written"):
        build(tmp_path / "no" / "folder", generate_documents(1, 1))
    with pytest.raises(InputError, match="holds no index"):
        StoredIndex(tmp_path / "none")
    assert list(tmp_path.iterdir()) == [small_index]
