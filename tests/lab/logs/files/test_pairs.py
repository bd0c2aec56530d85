"""The index of a batch's requests, by custom_id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.files import pairs
from specrace.lab.logs.files.pairs import RequestIndex
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.written import batch_pair
from tests.lab.parts import pack, write


def index_of(path: Path) -> RequestIndex:
    return RequestIndex(Source(path))


def by_letter(*parts: Any) -> tuple[list[int], list[int], tuple[()]]:
    """Stands in for a chat template and its tokenizer: the code of each letter."""
    return [1, *map(ord, str(parts[0]))], list(map(ord, parts[1]["content"])), ()


def request(name: str, text: str = "a") -> dict[str, object]:
    """A batch's request with this custom_id."""
    return {"custom_id": name, "body": {"prompt": text}}


def test_a_request_is_found_by_its_custom_id(tmp_path: Path) -> None:
    lines = [request(str(number), f"text {number}") for number in range(500)]
    index = index_of(write(tmp_path / "r.jsonl", b"?", *lines, request("7", "again"), {"custom_id": "x"}))
    assert index("7") == lines[7] and index("499") == lines[499]
    assert index("500") is None and index("x") is None
    index.close()


def test_ids_with_the_same_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_hash", lambda _: 5)
    index = index_of(write(tmp_path / "r.jsonl", request("a", "1"), request("b", "2")))
    assert index("b") == request("b", "2") and index("c") is None
    index.close()


def test_a_file_without_requests_has_none(tmp_path: Path) -> None:
    index = index_of(write(tmp_path / "r.jsonl", b""))
    assert index("a") is None
    index.close()


@pytest.mark.parametrize("name", ["r.jsonl.gz", "r.jsonl.zst", "r.jsonl.xz", "r.jsonl.bz2", "r.zip"])
def test_packed_requests_are_looked_up(tmp_path: Path, name: str) -> None:
    requests, responses = batch_pair(tmp_path)
    packed = pack(tmp_path / name, requests.read_bytes())
    expected = list(TranscriptFile(responses, requests=requests, chat=by_letter))
    assert expected and list(TranscriptFile(packed, requests=responses, chat=by_letter)) == expected


def test_two_files_must_be_a_pair(tmp_path: Path) -> None:
    requests, responses = batch_pair(tmp_path)
    for first, second in ((requests, requests), (responses, responses), (requests, write(tmp_path / "x", {"a": 1}))):
        with pytest.raises(InputError, match="not the requests and the responses of one batch"):
            list(TranscriptFile(first, requests=second))
    with pytest.raises(InputError, match="nowhere cannot be read"):
        list(TranscriptFile(requests, requests=tmp_path / "nowhere"))
