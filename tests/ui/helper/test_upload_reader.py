"""A visitor's uploaded files: how they are read, and which are left out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.limits import UPLOADS
from specrace.retrieval.passages import split_passages
from specrace.ui.helper import upload_reader
from specrace.ui.helper.time_limit import time_limit
from specrace.ui.helper.upload_reader import Upload, read_uploads
from specrace.ui.helper.visit_workbenches import VisitWorkbenches
from specrace.ui.visitor_limits import MAX_UPLOAD_FILES
from tests.retrieval.readers import samples


def write_file(folder: Path, name: str, text: str | bytes) -> str:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def upload(files: list[str]) -> Upload:
    """Return the upload that a visit reads from `files`."""
    uploaded = VisitWorkbenches(lambda paths, *_: read_uploads("", paths)).read("visit", files)
    assert uploaded is not None
    return uploaded


def test_uploads_become_documents_and_their_passages(tmp_path: Path) -> None:
    files = [
        write_file(tmp_path, "a.md", "# Owls\nOwls see at night.\r\n"),
        write_file(tmp_path, "b.txt", "Bees dance."),
    ]
    uploaded = upload(files)
    documents, passages = uploaded.parse()
    assert documents == read_documents([Path(file) for file in files]) and uploaded.skipped == ()
    assert passages == [passage for document in documents for passage in split_passages(document)]
    assert uploaded.num_passages == len(passages) == 2


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
    files = [
        write_file(tmp_path, "paper.pdf", samples.pdf("Clocks tick.")),
        write_file(tmp_path, "talk.pptx", samples.slides()),
    ]
    _, passages = upload(files).parse()
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
    uploaded = upload([bad, good])
    assert [document.name for document in uploaded.parse()[0]] == ["good.txt"]
    assert (
        uploaded.skipped == (str(caught.value),)
        and name in uploaded.skipped[0]
        and str(tmp_path) not in uploaded.skipped[0]
    )


def test_a_file_that_takes_too_long_after_parsing_is_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regular expression that takes exponential time slows down the splitting of one document."""

    def split_slowly(document: Document) -> Any:
        if document.name == "slow.txt":
            re.match(r"(o+)+$", document.text)
        return split_passages(document)

    monkeypatch.setattr(upload_reader, "UPLOADS", replace(UPLOADS, seconds=60.0))
    monkeypatch.setattr(upload_reader, "split_passages", split_slowly)
    monkeypatch.setattr(upload_reader, "time_limit", lambda _: time_limit(0.05))
    files = [write_file(tmp_path, "slow.txt", "o" * 60 + "."), write_file(tmp_path, "b.txt", "Bees dance.")]
    uploaded = upload(files)
    assert [document.name for document in uploaded.parse()[0]] == ["b.txt"] and uploaded.num_passages == 1
    assert uploaded.skipped == ("slow.txt takes more than 60 seconds to split: give a smaller file.",)


def test_files_are_read_up_to_the_size_limits(tmp_path: Path) -> None:
    # After a.txt, b.txt would exceed the total size, but c.txt does not.
    sizes = {"a.txt": 1_500_000, "b.txt": 600_000, "c.txt": 500_000}
    uploaded = upload([write_file(tmp_path, name, "x " * (size // 2)) for name, size in sizes.items()])
    assert [document.name for document in uploaded.parse()[0]] == ["a.txt", "c.txt"] and "b.txt" in uploaded.skipped[0]


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = [write_file(tmp_path, f"{number}.txt", "Some text.") for number in range(MAX_UPLOAD_FILES + 1)]
    assert len(upload(files[:-1]).parse()[0]) == MAX_UPLOAD_FILES
    with pytest.raises(InputError, match="at most 20"):
        upload(files)


def test_many_bad_files_are_named_without_the_servers_paths(tmp_path: Path) -> None:
    """Paths must be removed before a long message is cut: a path that is cut off would not be recognized."""
    folder = tmp_path / "deep" / ("f" * 60)
    folder.mkdir(parents=True)
    with pytest.raises(InputError) as caught:
        upload([write_file(folder, f"empty {number}.md", "# Title only\n") for number in range(20)])
    assert "empty 0.md" in str(caught.value) and "/" not in str(caught.value) and "fff" not in str(caught.value)
