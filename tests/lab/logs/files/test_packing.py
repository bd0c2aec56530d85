"""Packed logs: every kind is recognised by its bytes; a log that is cut, damaged or a bomb ends in one sentence."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import pytest
import zstandard

from specrace.core.errors import InputError
from specrace.lab.logs.bad_lines import OTHER_REASONS
from specrace.lab.logs.files import packing
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.parts import COPYING, FRESH, pack

ENDINGS = (".gz", ".zst", ".xz", ".bz2", ".zip")
# Long lines, because each line takes time; together they are enough for three blocks of Zstandard and of bzip2.
NUM_LINES = 1500
# Digits that do not repeat, so that no kind packs all of them into its first bytes.
LINES = b"".join(
    json.dumps({"id": random.Random(number).randbytes(130).hex(), "prompt_ids": [1], "output_ids": [2]}).encode()
    + b"\n"
    for number in range(NUM_LINES)
)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_packed_log_is_recognised_by_its_bytes_and_not_by_its_name(tmp_path: Path, ending: str) -> None:
    data = b"".join(json.dumps(row).encode() + b"\n" for row in (COPYING, FRESH))
    path = pack(tmp_path / f"t.jsonl{ending}", data).rename(tmp_path / "t")
    assert [transcript.id for transcript in TranscriptFile(path)] == ["a", "2"]


# A zip that is cut has lost its directory, and is refused as a whole.
@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS[:-1])
def test_a_packed_log_that_is_cut_counts_one_bad_line(tmp_path: Path, ending: str) -> None:
    path = pack(tmp_path / f"t.jsonl{ending}", LINES)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="breaks off here; copy or write it again"):
        list(TranscriptFile(path))
    file = TranscriptFile(path, skip_bad=True)
    count = len(list(file))
    assert 0 < count < NUM_LINES
    assert file.skipped == 1


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_damage_in_a_packed_log_is_reported(tmp_path: Path, ending: str) -> None:
    path = pack(tmp_path / f"t.jsonl{ending}", LINES)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(byte ^ 255 for byte in data[middle : middle + 40])
    path.write_bytes(data)
    file = TranscriptFile(path, skip_bad=True)
    assert len(list(file)) < NUM_LINES
    # Before the damage is noticed, wrongly unpacked bytes may look like many lines that are not JSON.
    assert sum("is damaged here" in reason or reason == OTHER_REASONS for reason in file.faults) == 1


@pytest.mark.parametrize("ending", ENDINGS[:-1])
def test_several_streams_in_one_file_are_one_log(tmp_path: Path, ending: str) -> None:
    first = pack(tmp_path / f"a{ending}", json.dumps(COPYING).encode() + b"\n").read_bytes()
    second = pack(tmp_path / f"b{ending}", json.dumps(FRESH).encode() + b"\n").read_bytes()
    (tmp_path / f"t.jsonl{ending}").write_bytes(first + second)
    assert len(list(TranscriptFile(tmp_path / f"t.jsonl{ending}"))) == 2


def test_a_skipped_frame_of_zstandard_is_not_part_of_the_log(tmp_path: Path) -> None:
    # A skippable frame: its magic number, the length of its data, and the data.
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    (tmp_path / "t.zst").write_bytes(skipped + zstandard.compress(json.dumps(FRESH).encode() + b"\n"))
    assert len(list(TranscriptFile(tmp_path / "t.zst"))) == 1


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz", ".bz2"])
def test_a_plain_file_with_a_packed_name_is_refused(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"t.jsonl{ending}").write_text(json.dumps(FRESH))
    with pytest.raises(InputError, match=f"line 1: this is not .*, though the name ends in {ending}"):
        list(TranscriptFile(tmp_path / f"t.jsonl{ending}"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"7z\xbc\xaf\x27\x1c\0\4", "is a 7z archive; unpack it"),
        (b"Rar!\x1a\x07\x01\0", "is a RAR archive"),
        (b"\x04\x22\x4d\x18\x64\x40", "is packed by lz4"),
        (b"t.jsonl".ljust(257, b"\0") + b"ustar\x0000", "is a tar archive"),
    ],
)
def test_archives_that_are_not_read_are_named(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "t").write_bytes(data.ljust(1024, b"\0"))
    with pytest.raises(InputError, match=words):
        list(TranscriptFile(tmp_path / "t"))
    with pytest.raises(InputError, match=words):
        list(TranscriptFile(pack(tmp_path / "t.gz", data.ljust(1024, b"\0"))))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".zst", ".xz", ".bz2"])
def test_a_bomb_is_refused(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_HARMLESS_BYTES", 100_000)
    path = pack(tmp_path / f"t{ending}", (b" " * 999 + b"\n") * 1000)
    file = TranscriptFile(path, skip_bad=True)
    assert list(file) == []
    assert dict(file.faults) == {"this unpacks to more than 1,000 times its size; give the file itself": 1}


def test_a_locked_zip_and_a_workbook_are_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    with pytest.raises(InputError, match="is an Excel workbook; save the sheet"):
        list(TranscriptFile(tmp_path / "book.zip"))
    path = pack(tmp_path / "t.zip", json.dumps(FRESH).encode())
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag for encryption in the member's own header, and below in the zip's directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="is encrypted; pack it without a password"):
        list(TranscriptFile(path))
    path.write_bytes(data[:-30])
    with pytest.raises(InputError, match="the zip file breaks off or is damaged"):
        list(TranscriptFile(path))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
def test_marked_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    text = "\n".join(json.dumps({"prompt": "für 日本", "output": "ü"}, ensure_ascii=False) for _ in range(3))
    mark = "\ufeff" if encoding.endswith("be") else ""
    (tmp_path / "t.jsonl").write_bytes((mark + text).encode(encoding))
    transcripts = list(TranscriptFile(tmp_path / "t.jsonl", tokenize=lambda text: [ord(letter) for letter in text]))
    assert [transcript.output for transcript in transcripts] == [(ord("ü"),)] * 3


def test_a_cut_utf_16_text_counts_one_bad_line(tmp_path: Path) -> None:
    lines = "".join(json.dumps(FRESH) + "\n" for _ in range(3))
    (tmp_path / "t.jsonl").write_bytes(lines.encode("utf-16")[:-1])
    file = TranscriptFile(tmp_path / "t.jsonl", skip_bad=True)
    list(file)
    assert dict(file.faults) == {"the UTF-16 text breaks off or is damaged here; write it as UTF-8": 1}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", '{"prompt_ids": [1], "output_ids": [2], "id": "é"}\n'),
        ("t.csv", "id,prompt_ids,output_ids\né,[1],[2]\n"),
    ],
)
def test_utf_16_without_a_mark_is_read(tmp_path: Path, encoding: str, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    assert [transcript.id for transcript in TranscriptFile(path)] == ["é"]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"%PDF-1.7\n", "a PDF"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or encrypted Office file"),
        (b"\x80\x05\x95", "a Python pickle"),
        (b"\x01\x02\x03\0\x05\0\x07", "a binary file, not a log"),
    ],
)
def test_a_file_without_text_is_named(tmp_path: Path, start: bytes, kind: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(start + bytes(range(256)))
    with pytest.raises(InputError, match=f"t.jsonl is {kind}"):
        list(TranscriptFile(path, skip_bad=True))


def test_a_log_that_begins_with_zeros_keeps_its_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\0" * 100 + b"\n" + json.dumps(FRESH).encode() + b"\n")
    assert len(list(TranscriptFile(path, skip_bad=True))) == 1
