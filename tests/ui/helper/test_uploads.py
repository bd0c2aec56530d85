"""A visitor's documents: how they are read, indexed and forgotten."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.errors import InputError
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.embedder import SentenceEmbedder, load_embedder
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.limits import UPLOADS
from specrace.retrieval.passages import embedded_text, split_passages
from specrace.retrieval.retriever import Retriever
from specrace.ui.helper import uploads
from specrace.ui.helper.time_limit import time_limit
from specrace.ui.helper.uploads import MAX_VISITS, Upload, VisitWorkbenches, read_uploads
from specrace.ui.limits import MAX_UPLOAD_FILES
from specrace.workbench import Workbench
from tests.retrieval.readers import samples


def write_file(folder: Path, name: str, text: str | bytes) -> str:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def upload(files: list[str]) -> Upload:
    """Return the upload that a visit reads from `files`."""
    read = VisitWorkbenches(lambda paths, *_: read_uploads("", paths)).read("visit", files)
    assert read is not None
    return read


def test_uploads_become_documents_and_their_passages(tmp_path: Path) -> None:
    files = [
        write_file(tmp_path, "a.md", "# Owls\nOwls see at night.\r\n"),
        write_file(tmp_path, "b.txt", "Bees dance."),
    ]
    read = upload(files)
    documents, passages = read.parse()
    assert documents == read_documents([Path(file) for file in files]) and read.skipped == ()
    assert passages == [passage for document in documents for passage in split_passages(document)]
    assert read.num_passages == len(passages) == 2


def test_the_code_in_passages_is_kept(tmp_path: Path) -> None:
    files = [
        write_file(tmp_path, "a.py", "# Owls\nsee()\n"),
        write_file(tmp_path, "b.md", "Bees.\n\n```\n# Dance\n```\n"),
    ]
    passages = upload(files).parse()[1]
    assert [[passage.text[start:end] for start, end in passage.code] for passage in passages] == [
        ["# Owls\nsee()"],
        ["```\n# Dance\n```"],
    ]


def test_passages_from_parsed_formats_keep_their_locations(tmp_path: Path) -> None:
    pages = [
        write_file(tmp_path, "paper.pdf", samples.pdf("Clocks tick.")),
        write_file(tmp_path, "talk.pptx", samples.slides()),
    ]
    _, passages = upload(pages).parse()
    assert [(passage.document, passage.place) for passage in passages] == [
        ("paper.pdf", "page 1"),
        ("talk.pptx", "slide 1–2"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("page.png", "<b>x</b>", "page.png is not a txt, md, html"),
        ("a.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("a.txt", b"a\x00b", "not UTF-8"),
        ("a.txt", "  \n ", "a.txt holds no text"),
        ("a.txt", "x" * 2_700_000, "a.txt is too large: at most 2,000,000 bytes"),
    ],
)
def test_bad_files_are_skipped_and_named_without_the_servers_paths(
    tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    bad, good = write_file(tmp_path, name, content), write_file(tmp_path, "good.txt", "Bees dance.")
    with pytest.raises(InputError, match=words) as caught:
        upload([bad])
    read = upload([bad, good])
    assert [document.name for document in read.parse()[0]] == ["good.txt"]
    assert read.skipped == (str(caught.value),) and name in read.skipped[0] and str(tmp_path) not in read.skipped[0]


def test_a_file_that_takes_too_long_after_parsing_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regular expression that takes exponential time slows down the splitting of one document."""

    def split_slowly(document: Document) -> Any:
        if document.name == "slow.txt":
            re.match(r"(o+)+$", document.text)
        return split_passages(document)

    monkeypatch.setattr(uploads, "UPLOADS", replace(UPLOADS, seconds=60.0))
    monkeypatch.setattr(uploads, "split_passages", split_slowly)
    monkeypatch.setattr(uploads, "time_limit", lambda _: time_limit(0.05))
    files = [write_file(tmp_path, "slow.txt", "o" * 60 + "."), write_file(tmp_path, "b.txt", "Bees dance.")]
    read = upload(files)
    assert [document.name for document in read.parse()[0]] == ["b.txt"] and read.num_passages == 1
    assert read.skipped == ("slow.txt takes more than 60 seconds to split: give a smaller file.",)


def test_files_are_read_up_to_the_size_limits(tmp_path: Path) -> None:
    sizes = {"a.txt": 1_500_000, "b.txt": 600_000, "c.txt": 500_000}
    read = upload([write_file(tmp_path, name, "x " * (size // 2)) for name, size in sizes.items()])
    assert [document.name for document in read.parse()[0]] == ["a.txt", "c.txt"] and "b.txt" in read.skipped[0]


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = [write_file(tmp_path, f"{number}.txt", "Some text.") for number in range(MAX_UPLOAD_FILES + 1)]
    assert len(upload(files[:-1]).parse()[0]) == MAX_UPLOAD_FILES
    with pytest.raises(InputError, match="at most 20"):
        upload(files)


@pytest.fixture(scope="module")
def shared() -> Workbench:
    """The server's workbench, on one document."""
    embedder = load_embedder()
    documents = [Document("bread.md", "Bread", "Yeast makes bread rise.")]
    passages = split_passages(documents[0])
    index = PassageIndex(passages, embedder.embed([passage.text for passage in passages]))
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    target: Any = SimpleNamespace(tokenizer=tokenizer, config=None, prompt_style="", max_context=2048)
    return Workbench(target, documents, Retriever(index, embedder), embedder)


def make_workbenches() -> VisitWorkbenches:
    return VisitWorkbenches(lambda paths, *_: read_uploads("", paths))


def open_workbench(
    workbenches: VisitWorkbenches, visit: str, shared: Workbench, files: list[str]
) -> tuple[Workbench, list[str]]:
    """The visit's workbench, and the progress reported before each batch."""
    reports: list[str] = []
    opening = workbenches.open(visit, shared, workbenches.read(visit, files))
    try:
        while True:
            reports.append(next(opening))
    except StopIteration as finished:
        return finished.value, reports


def test_a_visits_documents_do_not_change_the_shared_index(tmp_path: Path, shared: Workbench) -> None:
    workbenches = make_workbenches()
    file = write_file(tmp_path, "owls.md", "Owls hear a mouse under the snow.")
    workbench, _ = open_workbench(workbenches, "visit", shared, [file])
    assert workbench.target is shared.target
    assert [hit.passage.document for hit in workbench.retrieve("What do owls hear?")] == ["owls.md"]
    assert [hit.passage.document for hit in shared.retrieve("What do owls hear?")] == ["bread.md"]
    assert open_workbench(workbenches, "visit", shared, []) == (shared, [])


def test_a_visit_is_reindexed_only_when_its_documents_change(tmp_path: Path, shared: Workbench) -> None:
    workbenches = make_workbenches()
    file, second_file = (
        write_file(tmp_path, "owls.md", "Owls hear well."),
        write_file(tmp_path, "more.md", "Owls see well."),
    )
    first, _ = open_workbench(workbenches, "visit", shared, [file])
    assert open_workbench(workbenches, "visit", shared, [file]) == (first, [])
    assert open_workbench(workbenches, "visit", shared, [file, second_file])[0] is not first


def test_an_upload_is_embedded_in_batches_and_may_stop_after_any_of_them(tmp_path: Path, shared: Workbench) -> None:
    """A stopped race requests no further batch; indexing again embeds all of them."""
    sizes: list[int] = []

    def embed(texts: list[str]) -> Any:
        sizes.append(len(texts))
        return shared.embedder.embed(texts)

    embedder: Any = SimpleNamespace(embed=embed)
    counting, workbenches = replace(shared, embedder=embedder), make_workbenches()
    file = write_file(tmp_path, "many.txt", "\n\n".join(f"Fact {number}. " + "word " * 100 for number in range(70)))
    opening = workbenches.open("visit", counting, workbenches.read("visit", [file]))
    assert next(opening) == "Indexing your documents: 0 of 70 passages …" and sizes == []
    assert next(opening) == "Indexing your documents: 32 of 70 passages …" and sizes == [32]
    opening.close()
    workbench, reports = open_workbench(workbenches, "visit", counting, [file])
    assert sizes == [32, 32, 32, 6] and len(reports) == 3
    assert workbench.num_passages == 70 and workbench.retrieve("Fact 66")[0].passage.text.startswith("Fact 66.")


def test_a_document_without_blanks_is_indexed_within_the_embedders_reach(tmp_path: Path, shared: Workbench) -> None:
    workbenches, embedder = make_workbenches(), shared.embedder
    assert isinstance(embedder, SentenceEmbedder)
    file = write_file(tmp_path, "key.md", "\n\n".join(("# Key", "0f3a9c7b21" * 200, "Keep it safe.")))
    read = workbenches.read("visit", [file])
    assert read and workbenches.num_passages("visit") == read.num_passages == 1
    workbench, _ = open_workbench(workbenches, "visit", shared, [file])
    passages = workbench.retriever.index.passages
    assert max(embedder.count_covered([embedded_text(passage) for passage in passages])) <= embedder.room
    assert "".join(passage.text for passage in passages) == "0f3a9c7b21" * 200 + "Keep it safe."
    assert workbenches.num_passages("visit") == len(passages) > 8


def test_the_number_of_remembered_visits_is_bounded(tmp_path: Path, shared: Workbench) -> None:
    workbenches = make_workbenches()
    file = write_file(tmp_path, "owls.md", "Owls hear well.")
    for number in range(MAX_VISITS + 3):
        open_workbench(workbenches, f"visit {number}", shared, [file])
    assert len(workbenches) == MAX_VISITS
    workbenches.forget(f"visit {MAX_VISITS}")
    workbenches.forget("somebody else")
    assert len(workbenches) == MAX_VISITS - 1


def test_many_bad_files_are_named_without_the_servers_paths(tmp_path: Path) -> None:
    """Paths must be removed before a long message is cut: a path that is cut off would not be recognized."""
    folder = tmp_path / "deep" / ("f" * 60)
    folder.mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        upload([write_file(folder, f"empty {number}.md", "# Title only\n") for number in range(20)])
    assert "empty 0.md" in str(caught.value) and "/" not in str(caught.value) and "fff" not in str(caught.value)


def test_a_visitor_who_leaves_while_files_are_read_is_forgotten(tmp_path: Path, shared: Workbench) -> None:
    def read(paths: bytes, *_: Any) -> bytes:
        workbenches.forget("visit")
        return read_uploads("", paths)

    workbenches = VisitWorkbenches(read)
    read_upload = workbenches.read("visit", [write_file(tmp_path, "owls.md", "Owls hear well.")])
    assert read_upload is not None and len(workbenches) == 0
    for _ in workbenches.open("visit", shared, read_upload):
        pass
    assert len(workbenches) == 0
