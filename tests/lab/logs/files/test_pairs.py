"""The index of a batch's requests, by custom_id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.files import pairs
from specrace.lab.logs.files.pairs import RequestIndex, pair_files
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.written import batch_pair
from tests.lab.parts import pack, write


def index_of(path: Path) -> RequestIndex:
    """The index of the requests in this file."""
    return RequestIndex(Source(path))


def by_letter(*parts: Any) -> tuple[list[int], list[int], tuple[()]]:
    """Stands in for a chat template and its tokenizer: the code of each letter."""
    return [1, *map(ord, str(parts[0]))], list(map(ord, parts[1]["content"])), ()


def request(name: str, text: str = "a") -> dict[str, object]:
    """A batch's request with this custom_id."""
    return {"custom_id": name, "body": {"prompt": text}}


def test_a_request_is_found_by_its_custom_id(tmp_path: Path) -> None:
    lines = [request(str(number), f"text {number}") for number in range(500)]
    index = index_of(write(tmp_path / "r.jsonl", b"?", *lines, lines[7], request("8", "again"), {"custom_id": "x"}))
    assert index("7") == lines[7] and index("499") == lines[499]
    assert index("500") is None and index("x") is None
    with pytest.raises(ValueError, match="several requests have the id 8"):
        index("8")
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


def batch(folder: Path, requests: str, responses: str, *names: str, is_anthropic: bool = False) -> tuple[Path, Path]:
    """Write the two files of a batch with requests of these ids; return the paths (responses, requests)."""
    request_field, response_field = ("params", "result") if is_anthropic else ("body", "response")
    paths = folder / f"{responses}.jsonl", folder / f"{requests}.jsonl"
    for path, field in zip(paths, (response_field, request_field), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, *({"custom_id": name, field: {"text": requests}} for name in names))
    return paths


@pytest.mark.parametrize(
    "batches",
    [
        # By their names, by the names in two folders, by their folders, and by all their ids.
        [("b1_input", "b1_output", "1", "2"), ("b2_input", "b2_output", "1", "2")],
        [("requests/b1", "results/b1", "1", "2"), ("requests/b2", "results/b2", "1", "2")],
        [("one/ferry", "one/x", "1"), ("two/mole", "two/y", "1")],
        [("ferry", "x", "1", "2"), ("mole", "y", "1", "3")],
    ],
)
def test_batches_that_use_the_same_ids_are_told_apart(tmp_path: Path, batches: list[tuple[str, ...]]) -> None:
    pairs_of_files = [batch(tmp_path, *names) for names in batches]
    assert pair_files([path for pair in pairs_of_files for path in pair]) == pairs_of_files


def test_a_batch_of_another_api_with_the_same_ids_is_not_the_pair(tmp_path: Path) -> None:
    first, second = batch(tmp_path, "p", "q", "1"), batch(tmp_path, "r", "s", "1", is_anthropic=True)
    assert pair_files([*first, *second]) == [first, second]


def test_responses_that_may_answer_several_files_of_requests_are_refused(tmp_path: Path) -> None:
    batch(tmp_path, "ferry", "x", "1", "2")
    batch(tmp_path, "mole", "y", "1", "2")
    with pytest.raises(InputError, match=r"x\.jsonl may answer the requests of 2 files .ferry\.jsonl, mole\.jsonl."):
        list(TranscriptFile(tmp_path, skip_bad=True))
