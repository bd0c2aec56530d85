"""Reading transcripts: ids and text, and the ways in which a file can be broken."""

from __future__ import annotations

import gzip
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs import bad_lines
from specrace.lab.logs.files import containers, sources
from specrace.lab.logs.tokenizing import split_tokens
from specrace.lab.logs.transcripts import Transcript, TranscriptFile
from tests.lab.parts import COPYING, FRESH, write


def by_letter(text: str) -> list[int]:
    """Token ids: 1 at the start, then the code of each letter; "th" is one token, 200."""
    return [1, *(200 if letter == "\0" else ord(letter) for letter in text.replace("th", "\0"))]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t"])
def test_plain_and_gzip_files_are_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, COPYING, b"  ", FRESH)
    first, second = TranscriptFile(path)
    assert first == Transcript("a", "copy", (1, 2, 3, 4, 5, 9, 1, 2), (3, 4, 5, 9, 7, 3, 4, 8), 10)
    assert (second.id, second.vocab_size) == ("2", 7)


def test_gzip_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(write(tmp_path / "t.gz", FRESH).read_bytes())
    assert len(list(TranscriptFile(path))) == 1


def test_a_byte_order_mark_and_rows_without_labels_are_accepted(tmp_path: Path) -> None:
    path = write(tmp_path / "t", b'\xef\xbb\xbf{"prompt_ids": [1], "output_ids": [2]}\r')
    assert list(TranscriptFile(path)) == [Transcript("", "none", (1,), (2,), 3)]


def test_ids_are_used_where_a_line_has_ids_and_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t", FRESH | {"prompt": "a", "output": "b"})
    assert [row.output for row in TranscriptFile(path, tokenize=by_letter)] == [(4, 5, 6)]


def test_prompt_and_output_are_tokenised_as_one_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"prompt": "ab", "output": "cd"})
    assert list(TranscriptFile(path, tokenize=by_letter)) == [Transcript("", "none", (1, 97, 98), (99, 100), 101)]


def test_a_token_across_the_boundary_belongs_to_the_output() -> None:
    assert split_tokens("at", "he", by_letter) == ((1, 97), (200, 101))


def test_tokens_that_end_every_text_do_not_belong_to_the_prompt() -> None:
    assert split_tokens("a", "b", lambda text: [*by_letter(text), 2]) == ((1, 97), (98, 2))


IDS = "prompt_ids and output_ids"
BAD: list[tuple[Any, str]] = [
    (b'{"prompt_ids": [1], ', "this is not JSON .* at column 2[01]"),
    (b"[1, 2]", "not an object"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"prompt_ids": [' + b"9" * 5000 + b'], "output_ids": [1]}', "number too long"),
    (b'{"prompt": "\xff"}', "not UTF-8"),
    ({"prompt_ids": [1]}, "there is no output_ids"),
    ({"output_ids": [1]}, "there is no prompt_ids"),
    ({}, "there is no prompt; write prompt_ids"),
    ({"prompt": "a"}, "there is no output"),
    ({"prompt": "a", "output": ""}, "output is empty"),
    ({"prompt": "", "output": "b"}, "prompt is empty"),
    ({"prompt": 7, "output": "b"}, "prompt is not text"),
    ({"prompt": "a", "output": "b"}, "give --tokenizer"),
    ({"prompt_ids": [1], "output_ids": []}, "output_ids is empty"),
    ({"prompt_ids": [], "output_ids": [1]}, "prompt_ids is empty"),
    ({"prompt_ids": [1], "output_ids": [-1]}, "negative id -1"),
    ({"prompt_ids": [1], "output_ids": [1.0]}, "not a list of whole numbers"),
    ({"prompt_ids": [1], "output_ids": [True]}, "not a list of whole numbers"),
    ({"prompt_ids": [1], "output_ids": ["1"]}, "not a list of whole numbers"),
    ({"prompt_ids": "12", "output_ids": [1]}, "prompt_ids is not a list"),
    ({"prompt_ids": [1], "output_ids": [50]}, "output_ids has the id 50, but --vocab-size is 50"),
    ({"prompt_ids": [50], "output_ids": [1]}, "prompt_ids has the id 50"),
    (FRESH | {"category": ["a"]}, "category is neither"),
    (FRESH | {"id": {}}, "id is neither"),
    (FRESH | {"category": "a\ud800"}, "category has half a character at 1"),
    ({"prompt": "a", "output": "\udfffb"}, "output has half a character at 0"),
]


@pytest.mark.parametrize(("line", "reason"), BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_a_bad_line_is_reported_or_skipped(tmp_path: Path, name: str, line: Any, reason: str) -> None:
    path = write(tmp_path / name, *[FRESH] * 6, line, FRESH)
    with pytest.raises(InputError, match=f"{name}, line 7: .*{reason}"):
        list(TranscriptFile(path, vocab_size=50))
    skipping = TranscriptFile(path, vocab_size=50, skip_bad=True)
    assert len(list(skipping)) == 7
    assert skipping.skipped == 1 and "line 7" in skipping.reasons[0]


def test_ids_are_bounded_even_without_a_vocabulary_size(tmp_path: Path) -> None:
    path = write(tmp_path / "t", {"prompt_ids": [10**40], "output_ids": [1]})
    with pytest.raises(InputError, match=r"the id 1000000000…0000000000, but no vocabulary"):
        list(TranscriptFile(path))


# gzip ends with eight bytes that are not text: a checksum and a length.
@pytest.mark.parametrize("cut", [4, 8])
def test_a_truncated_gzip_ends_where_it_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "t.jsonl.gz", FRESH, COPYING)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match=r"t\.jsonl\.gz, line 3: the gzip file breaks off"):
        list(TranscriptFile(path))
    skipping = TranscriptFile(path, skip_bad=True)
    assert len(list(skipping)) == 2 and skipping.skipped == 1


def test_a_truncated_gzip_keeps_its_complete_lines(tmp_path: Path) -> None:
    # The ids look random, so that the packed file is not tiny.
    lines = [FRESH | {"id": str(number * 7919 % 1009)} for number in range(2000)]
    path = write(tmp_path / "t.gz", *lines)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    skipping = TranscriptFile(path, skip_bad=True)
    transcripts = list(skipping)
    assert 0 < len(transcripts) < 2000 and skipping.skipped == 1
    assert [row.id for row in transcripts] == [line["id"] for line in lines[: len(transcripts)]]


def test_a_damaged_gzip_is_distinguished_from_a_truncated_one(tmp_path: Path) -> None:
    path = write(tmp_path / "t.gz", FRESH)
    data = bytearray(path.read_bytes())
    data[-6] ^= 255  # in the checksum
    path.write_bytes(data)
    with pytest.raises(InputError, match="line 2: the gzip file is damaged"):
        list(TranscriptFile(path))


def test_a_plain_file_named_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_text('{"prompt_ids": [1], "output_ids": [2]}\n')
    with pytest.raises(InputError, match=r"t\.jsonl\.gz, line 1: this is not gzip"):
        list(TranscriptFile(path))


def test_a_very_long_line_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_LINE_BYTES", 100)
    path = write(tmp_path / "t.gz", FRESH, b"[" * 1000, FRESH, b"x" * 101)
    with pytest.raises(InputError, match="line 2: longer than"):
        list(TranscriptFile(path))
    skipping = TranscriptFile(path, skip_bad=True)
    assert len(list(skipping)) == 2 and skipping.skipped == 2


def test_a_file_is_read_lazily(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    with gzip.open(path, "wt") as handle:
        handle.write('{"prompt_ids": [1], "output_ids": [2]}\nnot reached\n')
    assert next(iter(TranscriptFile(path))).prompt == (1,)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(TranscriptFile(tmp_path / "missing.jsonl"))


def test_only_the_first_reasons_are_kept(tmp_path: Path) -> None:
    skipping = TranscriptFile(write(tmp_path / "t", *[b"?"] * 9), skip_bad=True)
    assert list(skipping) == [] and skipping.skipped == 9 and len(skipping.reasons) == bad_lines.MAX_SENTENCES


class _EndlessLine(io.RawIOBase):
    """An endless line; reading far past the maximum length of a line fails the test."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.read_so_far = getattr(self, "read_so_far", 0) + len(buffer)
        assert self.read_so_far < 1_000_000, "the reader goes on past the maximum length"
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def test_an_endless_line_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr(sources, "open_regular", lambda *_, **__: io.BufferedReader(_EndlessLine()))
    with pytest.raises(InputError, match="line 1: longer than"):
        list(TranscriptFile(Path("endless")))


def test_a_device_holds_no_transcripts() -> None:
    with pytest.raises(InputError, match=r"/dev/zero cannot be read .it is a device"):
        list(TranscriptFile(Path("/dev/zero"), skip_bad=True))


def test_transcripts_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = b'{"prompt_ids": [1], "output_ids": [2]}\n'
    writer = threading.Thread(target=lambda: pipe.write_bytes(line * 3))
    writer.start()
    assert len(list(TranscriptFile(pipe))) == 3
    writer.join()


def test_bad_lines_are_counted_by_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_lines, "MAX_REASONS", 2)
    lines = [b"{", {"prompt_ids": [1]}, {"prompt_ids": [1]}, {"output_ids": [1]}, {"prompt_ids": 1, "output_ids": 1}]
    file = TranscriptFile(write(tmp_path / "t", FRESH, *lines), skip_bad=True)
    assert len(list(file)) == 1 and file.skipped == 5
    assert sorted(file.faults.values()) == [1, 2, 2] and file.faults[bad_lines.OTHER_REASONS] == 2


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_an_empty_file_is_refused_or_left_out(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is empty; give a log"):
        list(TranscriptFile(path))
    file = TranscriptFile(path, skip_bad=True)
    assert list(file) == []
    assert file.skipped == 1


def test_a_log_without_a_line_of_the_given_format_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", COPYING)
    with pytest.raises(InputError, match="nothing of the format codex; leave --format out"):
        list(TranscriptFile(path, format="codex"))


@pytest.mark.parametrize("format", ["", "request-response"])
def test_a_line_that_is_nested_too_deeply_is_a_bad_line(tmp_path: Path, format: str) -> None:
    wrapped: dict[str, Any] = {"choices": []}
    for _ in range(600):
        wrapped = {"body": wrapped}
    path = write(tmp_path / "t.jsonl", {"request": {"messages": [], "body": wrapped}, "response": wrapped})
    with pytest.raises(InputError, match="line 1: "):
        list(TranscriptFile(path, format=format))
    skipping = TranscriptFile(path, skip_bad=True, format=format)
    assert not list(skipping)
    assert skipping.skipped


def sample(**changes: Any) -> dict[str, Any]:
    """A line with an id whose prompt and output are plain text, with these changes."""
    return {"id": "1", "request": {"prompt": "ab"}, "response": {"choices": [{"text": "cd"}]}} | changes


@pytest.mark.parametrize(
    ("second", "count"),
    [
        (sample(status="updated"), 1),
        (sample(id="2"), 2),
        (sample(response={"choices": [{"text": "ce"}]}), 2),
        (sample(request={"prompt": "ax"}), 2),
    ],
)
def test_a_copy_with_the_same_id_counts_once(tmp_path: Path, second: Any, count: int) -> None:
    log = TranscriptFile(write(tmp_path / "t.jsonl", sample(), second), tokenize=by_letter)
    assert len(list(log)) == count
    assert log.remarks.repeated == 2 - count


def test_equal_answers_to_one_request_and_answers_without_an_id_all_count(tmp_path: Path) -> None:
    twice = sample(response={"choices": [{"text": "cd"}] * 2})
    log = TranscriptFile(write(tmp_path / "t.jsonl", twice, *[sample(id=None)] * 2), tokenize=by_letter)
    assert len(list(log)) == 4


def history_remarks(tmp_path: Path, *rows: dict[str, Any]) -> list[str]:
    """What a log of these rows is said to lack."""
    log = TranscriptFile(write(tmp_path / "t", *rows), tokenize=by_letter)
    list(log)
    return [sentence for sentence in log.remarks.sentences() if "has the same" in sentence]


def test_turns_of_a_conversation_without_the_turns_before_them_are_reported(tmp_path: Path) -> None:
    def row(name: object, prompt: str) -> dict[str, Any]:
        return {"session_id": name, "prompt": prompt, "output": "b"}

    rows = [row("x", "a"), row(7, "a"), row("x", "c"), row("x", "d")]
    (sentence,) = history_remarks(tmp_path, *rows)
    assert sentence.startswith("2 of 4 requests (50 %): an earlier row has the same session_id")
    assert history_remarks(tmp_path, row("x", "a"), row("y", "a"), row(None, "a"), row(None, "a")) == []
