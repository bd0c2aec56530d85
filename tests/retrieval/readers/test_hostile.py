"""Broken and hostile files: each is reported with the reason, and no file outside the archive is read."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from io import BytesIO

import pytest

from specrace.retrieval.limits import COMMAND_LINE, ReadingLimits
from specrace.retrieval.readers import reading as readings
from specrace.retrieval.readers.archives import read_content
from specrace.retrieval.readers.reading import Reading
from tests.growth import MAX_LINEAR_GROWTH, growth
from tests.retrieval.readers import samples

NESTED_ZIPS = samples.packed({"a.zip": samples.packed({"b.zip": samples.packed({"x.md": "deep"})})})
THREE_FILES = samples.packed({f"{number}.md": f"File {number}." for number in range(3)})


def read(name: str, content: bytes, limits: ReadingLimits = COMMAND_LINE) -> tuple[dict[str, Reading], dict[str, str]]:
    """Return the members that were read, and the reasons for those that were not, both by path."""
    answers = list(read_content(name, content, limits))
    good = {member: answer for member, answer in answers if isinstance(answer, Reading)}
    return good, {member: answer for member, answer in answers if isinstance(answer, str)}


def encrypted_zip() -> bytes:
    """A zip whose member is only marked as encrypted: the standard library cannot write encrypted zips."""
    content = bytearray(samples.packed({"a.md": "secret"}))
    # Bit 0 of the flags, before the member and in the zip's directory.
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def linked_zip() -> bytes:
    """A zip whose member is a symbolic link to /etc/passwd."""
    stream = BytesIO()
    info = zipfile.ZipInfo("link.md")
    # The upper 16 bits are the file's mode on Unix: a symbolic link.
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "member", "words"),
    [
        ("a.pdf", b"%PDF-1.7 junk", "", "is a broken PDF"),
        ("a.pdf", b"junk", "", "is a broken PDF"),
        ("a.pdf", samples.pdf("Secret.", password="x"), "", "is encrypted"),
        ("a.pdf", samples.pdf(""), "", "holds no text, perhaps only scanned images"),
        ("a.docx", samples.word()[:5000], "", "is broken"),
        ("a.docx", b"junk", "", "is broken"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "", "is encrypted, or an old Office file"),
        (
            "a.docx",
            samples.with_entity(samples.word(), "word/document.xml", b"w:document"),
            "",
            "declares XML entities",
        ),
        ("a.xlsx", samples.with_entity(samples.sheets(), "xl/workbook.xml", b"workbook"), "", "declares XML entities"),
        ("a.pptx", samples.packed({"ppt/presentation.xml": "<a/>"}), "", "is a broken Office file"),
        ("a.xlsx", samples.packed({"xl/workbook.xml": "<a/>"}), "", "is a broken spreadsheet"),
        ("a.docx", samples.packed({"word/document.xml": " " * 9_000_000}), "", "unpacks to far more"),
        ("a.zip", samples.bomb(9_000_000), "zeros.txt", "unpacks to far more"),
        ("a.zip", NESTED_ZIPS, "a.zip/b.zip", "lies too deep"),
        ("a.zip", samples.packed({"../../x.md": "out"}), "../../x.md", "leads out of the zip"),
        ("a.zip", samples.packed({"..\\x.md": "out"}), "../x.md", "leads out of the zip"),
        ("a.zip", samples.packed({"/etc/x.md": "out"}), "/etc/x.md", "leads out of the zip"),
        ("a.zip", samples.packed({"b.zip": samples.packed({"/x.md": "out"})}), "b.zip//x.md", "leads out of the zip"),
        ("a.zip", samples.packed({"photo.png": "x"}), "", "holds no txt, md"),
        ("a.zip", linked_zip(), "link.md", "is a link"),
        ("a.zip", encrypted_zip(), "a.md", "is encrypted"),
        ("a.zip", b"PK\x03\x04junk", "", "is broken"),
        ("a.zip", samples.packed({"bad.pdf": "junk"}), "bad.pdf", "is a broken PDF"),
        ("a.json", b"[" * 200_000, "", "nested too deeply"),
        ("a.json", b'{"a": ' * 90_000 + b"1" + b"}" * 90_000, "", "nested too deeply"),
        ("a.json", b"{", "", "is not JSON"),
        ("a.jsonl", b"x\ny", "", "holds no JSON"),
        ("a.ipynb", b"[]", "", "is a broken notebook"),
        ("a.ipynb", b'{"cells": [3]}', "", "is a broken notebook"),
        ("a.csv", b'a,b\n"' + b"x" * 1_100_000, "", "is a broken table"),
        ("a.csv", b"\xff\xfe\x00", "", "is not UTF-8 text"),
        ("a.html", b"<script>only()</script>", "", "holds no text"),
        ("a.md", b"", "", "holds no text"),
        ("a.exe", b"MZ", "", "is not a txt, md, html"),
    ],
)
def test_an_unusable_file_is_reported_with_the_reason(name: str, content: bytes, member: str, words: str) -> None:
    good, bad = read(name, content)
    assert not good and list(bad) == [member] and words in bad[member]


def test_a_bad_member_does_not_affect_the_others() -> None:
    good, bad = read("a.zip", samples.packed({"bad.pdf": "junk", "good.md": "Fine.", "../out.md": "x"}))
    assert list(good) == ["good.md"] and list(bad) == ["bad.pdf", "../out.md"]


def test_hidden_members_and_unsupported_kinds_are_skipped() -> None:
    members = {"a.md": "Fine.", ".git/b.md": "x", "__MACOSX/a.md": "x", "photo.png": "x", "folder/": ""}
    assert [list(names) for names in read("a.zip", samples.packed(members))] == [["a.md"], []]


@pytest.mark.parametrize(
    ("name", "content", "limits", "words"),
    [
        ("a.md", b"word " * 9, {"characters": 40}, "has more than 40 characters"),
        ("a.csv", b"word\n" * 9, {"characters": 40}, "has more than 40 characters"),
        ("a.html", b"<p>word" * 9, {"characters": 40}, "has more than 40 characters"),
        ("a.docx", samples.word(), {"unpacked_bytes": 9000}, "unpacks to far more"),
        ("a.zip", samples.packed({"a.md": "word " * 9}), {"unpacked_bytes": 40}, "unpacks to far more"),
    ],
)
def test_a_file_over_a_limit_is_refused(name: str, content: bytes, limits: dict[str, int], words: str) -> None:
    good, bad = read(name, content, replace(COMMAND_LINE, **limits))
    assert not good and words in str(bad)


def test_what_was_read_before_a_limit_is_kept() -> None:
    limits = replace(COMMAND_LINE, pages=1, files=2)
    for name, content, words in (
        ("a.pdf", samples.pdf("One.", "Two."), "is read up to page 1."),
        ("a.pptx", samples.slides(), "is read up to slide 1."),
    ):
        good, bad = read(name, content, limits)
        assert len(good) == 1 and bad == {"": words}
    good, bad = read("a.zip", THREE_FILES, limits)
    assert list(good) == ["0.md", "1.md"] and "more than 2 documents" in bad[""]


def test_a_long_pdf_is_read_as_far_as_its_time_allows() -> None:
    good, bad = read("a.pdf", samples.pdf("One.", "Two.", "Three."), replace(COMMAND_LINE, seconds=0.0))
    assert good[""].text == "One." and bad == {"": "is read up to page 1: it takes too long."}


def test_an_address_is_one_short_line() -> None:
    good, _ = read("a.json", json.dumps({"k\n" * 500: 1}).encode())
    ((_, address, _),) = good[""].marks
    assert address.startswith("key k k k") and len(address) == readings.MAX_ADDRESS_CHARS


def test_lines_that_are_not_json_are_counted() -> None:
    good, bad = read("a.jsonl", b'{"a": 1}\nx\n{"a": 2}\ny\n')
    assert good[""].text == "a: 1\n\na: 2" and bad == {"": "has 2 lines that are not JSON, the first in line 2."}


def test_the_error_for_a_missing_parser_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(readings.importlib, "import_module", missing)
    for name in ("paper.pdf", "letter.docx", "talk.pptx", "prices.xlsx"):
        _, bad = read(name, samples.valid_files()[name])
        assert "pip install 'specrace[documents]'" in bad[""]


def test_json_values_of_every_type_become_text() -> None:
    record = {"none": None, "yes": True, "text": "a\0b \ud800", "empty": "", "list": [1, [2, {"x": 3}]]}
    good, _ = read("a.json", json.dumps(record).encode())
    assert good[""].text == "yes: True\n\ntext: ab ?\n\nlist: 1; list: 2; list.x: 3"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a;b\n1;2\n", "a: 1; b: 2"),
        (b"a\tb\n1\t2\n", "a: 1; b: 2"),
        (b"1,2\n3,4\n", "1; 2\n\n3; 4"),
        (b"only\none\ncolumn\n", "only\n\none\n\ncolumn"),
        (b"a,b\n", "a; b"),
        (b'a,b\n"x\ny",2\n5,6\n', "a: x y; b: 2\n\na: 5; b: 6"),
        (b"a,b\n1,2,3\n4\n", "a: 1; b: 2; 3\n\na: 4"),
    ],
)
def test_each_row_of_a_table_repeats_the_column_names(content: bytes, text: str) -> None:
    assert read("a.csv", content)[0][""].text == text


@pytest.mark.parametrize("declared", ["windows-1251", "koi8-r"])
def test_html_is_decoded_in_its_declared_encoding(declared: str) -> None:
    page = f"<meta charset='{declared}'><p>съешь ещё".encode(declared)
    assert read("a.html", page)[0][""].text == "съешь ещё"
    # Python has a codec of this name, but it decodes no bytes.
    assert "is not UTF-8" in read("a.html", page.replace(declared.encode(), b"rot13"))[1][""]


@pytest.mark.parametrize(
    ("text", "times"), [("<a ", 100), ("<a href=", 100), ("<!--x>", 100), ("<![CDATA[x>", 1000), ("<![if x>", 1000)]
)
def test_reading_html_takes_time_in_proportion_to_its_length(text: str, times: int) -> None:
    """At each "<", Python's parser looks for the end of what begins there; by itself it would search the whole text."""
    assert growth(lambda count: read("a.html", (text * count).encode()), times) < MAX_LINEAR_GROWTH


def test_text_after_an_unfinished_tag_or_comment_is_kept() -> None:
    for page in ("<p>Owls <!-- hear", "<p>Owls <a hear", "<p>Owls < hear", "<p>Owls<![CDATA[ > hear"):
        assert read("a.html", page.encode())[0][""].text.split()[-1] == "hear"
    (page,) = read("a.html", b"<p>Owls<!-- not this --> hear <!-- not this -->well.")[0].values()
    assert page.text.strip() == "Owls hear well."
