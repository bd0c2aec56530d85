"""The workbenches on visitors' documents: how they are indexed, remembered and forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from specrace.core.bundled import BUNDLED_MODEL
from specrace.retrieval.documents import Document
from specrace.retrieval.embedder import SentenceEmbedder, load_embedder
from specrace.retrieval.index import PassageIndex
from specrace.retrieval.passages import embedded_text, split_passages
from specrace.retrieval.retriever import Retriever
from specrace.ui.helper import visit_workbenches
from specrace.ui.helper.upload_reader import read_uploads
from specrace.ui.helper.visit_workbenches import VisitWorkbenches
from specrace.workbench import Workbench
from tests.ui.helper.test_upload_reader import write_file


@pytest.fixture(scope="module")
def server_workbench() -> Workbench:
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
    workbenches: VisitWorkbenches, visit: str, server_workbench: Workbench, files: list[str]
) -> tuple[Workbench, list[str]]:
    """The visit's workbench, and the progress reported before each batch."""
    reports: list[str] = []
    opening = workbenches.open(visit, server_workbench, workbenches.read(visit, files))
    try:
        while True:
            reports.append(next(opening))
    except StopIteration as finished:
        return finished.value, reports


def test_a_visits_documents_do_not_change_the_shared_index(tmp_path: Path, server_workbench: Workbench) -> None:
    workbenches = make_workbenches()
    file = write_file(tmp_path, "owls.md", "Owls hear a mouse under the snow.")
    workbench, _ = open_workbench(workbenches, "visit", server_workbench, [file])
    assert workbench.target is server_workbench.target
    assert [hit.passage.document for hit in workbench.retrieve("What do owls hear?")] == ["owls.md"]
    assert [hit.passage.document for hit in server_workbench.retrieve("What do owls hear?")] == ["bread.md"]
    assert open_workbench(workbenches, "visit", server_workbench, []) == (server_workbench, [])


def test_a_visit_is_reindexed_only_when_its_documents_change(tmp_path: Path, server_workbench: Workbench) -> None:
    workbenches = make_workbenches()
    file, second_file = (
        write_file(tmp_path, "owls.md", "Owls hear well."),
        write_file(tmp_path, "more.md", "Owls see well."),
    )
    first, _ = open_workbench(workbenches, "visit", server_workbench, [file])
    assert open_workbench(workbenches, "visit", server_workbench, [file]) == (first, [])
    assert open_workbench(workbenches, "visit", server_workbench, [file, second_file])[0] is not first


def test_an_upload_is_embedded_in_batches_and_embedding_may_stop_after_any_batch(
    tmp_path: Path, server_workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped race requests no further batch; indexing again embeds all of them."""
    monkeypatch.setattr(visit_workbenches, "BATCH_SIZE", 3)
    batch_sizes: list[int] = []

    def embed(texts: list[str]) -> Any:
        batch_sizes.append(len(texts))
        return server_workbench.embedder.embed(texts)

    embedder: Any = SimpleNamespace(embed=embed)
    counting_workbench, workbenches = replace(server_workbench, embedder=embedder), make_workbenches()
    file = write_file(tmp_path, "many.txt", "\n\n".join(f"Fact {number}. " + "word " * 100 for number in range(7)))
    opening = workbenches.open("visit", counting_workbench, workbenches.read("visit", [file]))
    assert next(opening) == "Indexing your documents: 0 of 7 passages …" and batch_sizes == []
    assert next(opening) == "Indexing your documents: 3 of 7 passages …" and batch_sizes == [3]
    opening.close()
    workbench, reports = open_workbench(workbenches, "visit", counting_workbench, [file])
    # The stopped race embedded one batch; the second race embeds all 7 passages.
    assert batch_sizes == [3, 3, 3, 1] and len(reports) == 3
    assert workbench.num_passages == 7 and workbench.retrieve("Fact 6")[0].passage.text.startswith("Fact 6.")


def test_a_document_without_blanks_is_indexed_within_the_embedders_reach(
    tmp_path: Path, server_workbench: Workbench
) -> None:
    workbenches, embedder = make_workbenches(), server_workbench.embedder
    assert isinstance(embedder, SentenceEmbedder)
    file = write_file(tmp_path, "key.md", "\n\n".join(("# Key", "0f3a9c7b21" * 200, "Keep it safe.")))
    uploaded = workbenches.read("visit", [file])
    assert uploaded and workbenches.num_passages("visit") == uploaded.num_passages == 1
    workbench, _ = open_workbench(workbenches, "visit", server_workbench, [file])
    passages = workbench.retriever.index.passages
    texts = [embedded_text(passage) for passage in passages]
    assert max(embedder.count_weighted_tokens(texts)) <= embedder.max_text_tokens
    assert "".join(passage.text for passage in passages) == "0f3a9c7b21" * 200 + "Keep it safe."
    # The only passage was split further, because the embedder reads a limited number of tokens.
    assert workbenches.num_passages("visit") == len(passages) > 8


def test_the_number_of_remembered_visits_is_bounded(
    tmp_path: Path, server_workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit_workbenches, "MAX_VISITS", 3)
    workbenches = make_workbenches()
    file = write_file(tmp_path, "owls.md", "Owls hear well.")
    for number in range(5):
        open_workbench(workbenches, f"visit {number}", server_workbench, [file])
    assert len(workbenches) == 3
    workbenches.forget("visit 4")
    workbenches.forget("somebody else")
    assert len(workbenches) == 2


def test_a_visitor_who_leaves_while_files_are_read_is_forgotten(tmp_path: Path, server_workbench: Workbench) -> None:
    def read(paths: bytes, *_: Any) -> bytes:
        workbenches.forget("visit")
        return read_uploads("", paths)

    workbenches = VisitWorkbenches(read)
    read_upload = workbenches.read("visit", [write_file(tmp_path, "owls.md", "Owls hear well.")])
    assert read_upload is not None and len(workbenches) == 0
    for _ in workbenches.open("visit", server_workbench, read_upload):
        pass
    assert len(workbenches) == 0
