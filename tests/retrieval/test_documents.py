from __future__ import annotations

import os
from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document, read_documents


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_folder_is_read_sorted_and_below(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "bee")
    write(tmp_path / "a" / "z.MD", "# Zed\nzed")
    write(tmp_path / "c.py", "print()")
    write(tmp_path / ".git" / "hidden.md", "hidden")
    assert read_documents([tmp_path]) == [Document("a/z.MD", "Zed", "zed"), Document("b.txt", "b", "bee")]


@pytest.mark.parametrize(
    ("content", "title", "text"),
    [
        ("# Tides #\n\nThe sea.\n## More\nRest", "Tides", "\nThe sea.\n## More\nRest"),
        ("Before.\n## Late\nAfter.", "Late", "Before.\nAfter."),
        ("```\n# a comment\n```\n# Real\nBody", "Real", "```\n# a comment\n```\nBody"),
        ("#hashtag only", "name", "#hashtag only"),
        ("#   \nBody", "name", "Body"),
        ("# " + "x" * 500 + "\nBody", "x" * 120, "Body"),
        ("# <img src=x onerror=alert(1)>\nBody", "<img src=x onerror=alert(1)>", "Body"),
    ],
)
def test_title_is_the_first_heading(tmp_path: Path, content: str, title: str, text: str) -> None:
    assert read_documents([write(tmp_path / "name.md", content)]) == [Document("name.md", title, text)]


def test_bom_and_line_ends_are_normalised(tmp_path: Path) -> None:
    file = write(tmp_path / "a.md", b"\xef\xbb\xbf# Title\r\nOne.\r\nTwo.\rThree.")
    assert read_documents([file]) == [Document("a.md", "Title", "One.\nTwo.\nThree.")]


@pytest.mark.parametrize("name", ["two words.md", "<img src=x onerror=alert(1)>.md", "مرحبا.txt", "${HOME}.md"])
def test_odd_names_are_kept(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, "text")
    assert [document.name for document in read_documents([tmp_path])] == [name]


def test_name_that_is_not_utf8_can_be_encoded(tmp_path: Path) -> None:
    try:
        write(tmp_path / os.fsdecode(b"caf\xe9.md"), "text")
    except OSError:
        pytest.skip("this file system allows UTF-8 names only")
    assert read_documents([tmp_path])[0].name.encode() == "caf\ufffd.md".encode()


def test_names_stay_unique_and_files_are_read_once(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1" / "a.md", "one"), write(tmp_path / "2" / "a.md", "two")
    documents = read_documents([first, second, tmp_path / "1", first])
    assert [(document.name, document.text) for document in documents] == [
        ("a.md", "one"),
        ("a.md (2)", "two"),
    ]


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "outside" / "secret.md", "secret")
    inside = write(tmp_path / "root" / "a.md", "inside")
    (tmp_path / "root" / "link.md").symlink_to(secret)
    (tmp_path / "root" / "folder").symlink_to(secret.parent)
    (tmp_path / "root" / "again.md").symlink_to(inside)
    (tmp_path / "root" / "broken.md").symlink_to(tmp_path / "nowhere.md")
    assert [document.text for document in read_documents([tmp_path / "root"])] == ["inside"]


def test_empty_files_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "blank.md", " \n\n")
    write(tmp_path / "empty.md", "")
    write(tmp_path / "heading-only.md", "# Only a title\n")
    write(tmp_path / "full.md", "text")
    assert [document.name for document in read_documents([tmp_path])] == ["full.md"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("polish.txt", "pchnąć w tę łódź jeża".encode("cp1250"), "UTF-8"),
        ("dos.txt", "gemäß der Märzordnung".encode("cp850"), "UTF-8"),
        ("russian.txt", "съешь ещё этих булок".encode("cp1251"), "UTF-8"),
        ("half.txt", "wide".encode("utf-16")[:-1], "UTF-8"),
        ("nul.md", b"a\0b", "UTF-8"),
        ("page.html", b"<p>text</p>", ".md or .txt"),
        ("blank.md", b" ", "No text"),
    ],
)
def test_unusable_file_is_named(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(InputError) as error:
        read_documents([file])
    assert name in str(error.value) and complaint in str(error.value)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings_are_read_where_there_is_no_doubt(tmp_path: Path, encoding: str) -> None:
    text = "Der Käse wurde am 31. März naïve café genannt. ¿Qué pasó después?\n"
    assert read_documents([write(tmp_path / "a.md", text.encode(encoding))])[0].text == text


def test_a_bad_file_among_good_ones_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path / "bad.md", b"\x00\x01\xff")
    write(tmp_path / "good.md", "Owls see at night.")
    write(tmp_path / "worse.md", "x" * 99)
    skipped: list[str] = []
    found = read_documents([tmp_path], skip=skipped.append, max_bytes=50)
    assert [document.name for document in found] == ["good.md"]
    assert len(skipped) == 2 and "bad.md" in skipped[0] and "worse.md" in skipped[1]
    (tmp_path / "good.md").unlink()
    with pytest.raises(InputError, match=r"bad\.md.*worse\.md"):
        read_documents([tmp_path], max_bytes=50)


def test_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        read_documents([tmp_path / "nowhere"])


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No text"):
        read_documents([])
    with pytest.raises(InputError, match=tmp_path.name):
        read_documents([tmp_path])


def test_limits(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.md", "12345")
    assert len(read_documents([tmp_path], max_files=3, max_bytes=15)) == 3
    with pytest.raises(InputError, match="more than 2 documents"):
        read_documents([tmp_path], max_files=2)
    with pytest.raises(InputError, match="more than 14 bytes"):
        read_documents([tmp_path], max_bytes=14)


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    write(tmp_path / "a.md", "text")
    assert [document.name for document in read_documents([tmp_path])] == ["a.md"]
