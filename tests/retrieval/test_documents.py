"""Documents: which files are read, their titles and encodings, and the limits on reading."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from specrace.core.errors import InputError
from specrace.retrieval import documents as documents_module
from specrace.retrieval import encoding as encoding_module
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.limits import COMMAND_LINE
from tests.retrieval.readers import samples


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_folder_is_read_recursively_in_sorted_order(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "bee")
    write(tmp_path / "a" / "z.MD", "# Zed\nzed")
    write(tmp_path / "c.png", "print()")
    write(tmp_path / ".git" / "hidden.md", "hidden")
    assert read_documents([tmp_path]) == [Document("a/z.MD", "Zed", "zed"), Document("b.txt", "b", "bee")]


@pytest.mark.parametrize(
    ("content", "title", "text"),
    [
        ("# Tides #\n\nThe sea.\n## More\nRest", "Tides", "\nThe sea.\n## More\nRest"),
        ("Before.\n## Late\nAfter.", "name", "Before.\n## Late\nAfter."),
        ("A picture.\n# Tides\n## More\nRest", "Tides", "A picture.\n## More\nRest"),
        ("---\nlayout: page\n---\n# Tides\nRest", "Tides", "layout: page\n\nRest"),
        ("```\n# a comment\n```\n# Real\nBody", "Real", "```\n# a comment\n```\nBody"),
        ("#hashtag only", "name", "#hashtag only"),
        ("#   \nBody", "name", "Body"),
        ("# " + "x" * 500 + "\nBody", "x" * 120, "Body"),
        ("# <img src=x onerror=alert(1)>\nBody", "<img src=x onerror=alert(1)>", "Body"),
    ],
)
def test_the_title_is_a_heading_at_the_top_or_else_the_first_of_level_1(
    tmp_path: Path, content: str, title: str, text: str
) -> None:
    assert read_documents([write(tmp_path / "name.md", content)]) == [Document("name.md", title, text)]


def test_byte_order_mark_is_removed_and_line_endings_are_normalised(tmp_path: Path) -> None:
    file = write(tmp_path / "a.md", b"\xef\xbb\xbf# Title\r\nOne.\r\nTwo.\rThree.")
    assert read_documents([file]) == [Document("a.md", "Title", "One.\nTwo.\nThree.")]


@pytest.mark.parametrize("name", ["two words.md", "<img src=x onerror=alert(1)>.md", "مرحبا.txt", "${HOME}.md"])
def test_unusual_file_names_are_kept(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, "text")
    assert [document.name for document in read_documents([tmp_path])] == [name]


def test_a_file_name_that_is_not_utf8_is_made_encodable(tmp_path: Path) -> None:
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
    skipped: list[str] = []
    assert [document.text for document in read_documents([tmp_path / "root"], on_skip=skipped.append)] == ["inside"]
    # The other one is the broken link. A linked folder, and a file that was read already, are ignored silently.
    assert [line for line in skipped if "link.md is a link out of the folder" in line] and len(skipped) == 2


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
        ("photo.png", b"<p>text</p>", "is not a txt, md, html"),
        ("blank.md", b" ", "holds no text"),
        ("invisible.txt", "\u200b\u200d\ufeff\n\u200b".encode(), "holds no text"),
        ("invisible.html", "<p>\u200b</p>".encode(), "holds no text"),
    ],
)
def test_the_error_names_an_unusable_file(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    file = write(tmp_path / name, content)
    with pytest.raises(InputError) as error:
        read_documents([file])
    assert name in str(error.value) and complaint in str(error.value)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_unambiguous_encodings_are_recognised(tmp_path: Path, encoding: str) -> None:
    text = "Der Käse wurde am 31. März naïve café genannt. ¿Qué pasó después?\n"
    assert read_documents([write(tmp_path / "a.md", text.encode(encoding))])[0].text == text


@pytest.mark.parametrize(
    "content",
    [
        "It’s only a café – naïve".encode()[:-1],
        "It’s only a café".encode() + b" \x92",
        "Grüße aus Köln. ".encode() * 20 + b"\xfc" + "Größe".encode() * 20,
        "Москва".encode()[:-1],
    ],
    ids=["truncated", "one Windows-1252 byte", "one Latin-1 byte", "truncated inside a character"],
)
def test_slightly_damaged_utf8_is_read_as_utf8(tmp_path: Path, content: bytes) -> None:
    assert read_documents([write(tmp_path / "a.txt", content)])[0].text == content.decode("utf-8", "replace")


def test_the_encoding_of_a_very_long_line_is_detected_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[bytes] = []
    monkeypatch.setattr(encoding_module, "_other_script", lambda sample: examined.append(sample) or "")
    file = write(tmp_path / "a.txt", CYRILLIC.strip().encode("cp1251") * 2000)
    with pytest.raises(InputError, match="UTF-8"):
        read_documents([file])
    # A single line has no end at which the sample could be cut, so it has the largest size.
    assert [len(sample) for sample in examined] == [16_384]


CYRILLIC = "Москва является столицей России и крупнейшим городом страны.\n"
SCRIPTS = {
    "cp1251": CYRILLIC,
    "koi8-r": CYRILLIC,
    "cp866": CYRILLIC,
    "cp1253": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας και η μεγαλύτερη πόλη της χώρας.\n",
    "shift_jis": "東京は日本の首都であり、世界最大の都市の一つです。吾輩は猫である。\n",
    "gb18030": "北京是中华人民共和国的首都，也是全国的政治、文化中心。北京位于华北平原。\n",
    "euc_kr": "서울은 대한민국의 수도이자 최대 도시이다. 한반도 중앙에 위치해 있다.\n",
}


@pytest.mark.parametrize("encoding", SCRIPTS)
def test_encodings_of_other_scripts_are_told_apart(tmp_path: Path, encoding: str) -> None:
    # Little more than the fewest bytes that are examined (100), and more than the most (16,384).
    for times in (2, 3000):
        text = SCRIPTS[encoding] * times
        assert read_documents([write(tmp_path / "a.txt", text.encode(encoding))])[0].text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("cp1250", "Pchnąć w tę łódź jeża. "), ("cp1254", "İstanbul kalabalık şehridir. "), ("cp850", "Gemäß März. ")],
)
def test_latin_encodings_that_look_alike_are_refused(tmp_path: Path, encoding: str, text: str) -> None:
    with pytest.raises(InputError, match="is not UTF-8"):
        read_documents([write(tmp_path / "a.txt", (text * 20).encode(encoding))])


def test_arbitrary_bytes_are_refused(tmp_path: Path) -> None:
    noise = bytes(range(256)) * 10_000
    with pytest.raises(InputError, match="is not UTF-8"):
        read_documents([write(tmp_path / "a.txt", noise)])


def test_bad_files_are_reported_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path / "bad.md", b"\x00\x01\xff")
    write(tmp_path / "good.md", "Owls see at night.")
    write(tmp_path / "worse.md", "x" * 99)
    skipped: list[str] = []
    documents = read_documents([tmp_path], on_skip=skipped.append, limits=replace(COMMAND_LINE, file_bytes=50))
    assert [document.name for document in documents] == ["good.md"]
    assert len(skipped) == 2 and "bad.md" in skipped[0] and "worse.md" in skipped[1]
    (tmp_path / "good.md").unlink()
    with pytest.raises(InputError, match=r"bad\.md.*worse\.md"):
        read_documents([tmp_path], limits=replace(COMMAND_LINE, file_bytes=50))


def test_the_error_names_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        read_documents([tmp_path / "nowhere"])


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No text"):
        read_documents([])
    with pytest.raises(InputError, match=tmp_path.name):
        read_documents([tmp_path])


@pytest.mark.parametrize(
    ("limit", "bound", "num_read", "message"),
    [
        ("files", 2, 2, "holds more than 2 documents: the others are left out"),
        ("total_bytes", 14, 2, "2.md is too large: at most 14 bytes are read in all"),
        ("characters", 14, 2, "2.md has more than 4 characters"),  # 14 without the 10 of the first two
        ("file_bytes", 5, 2, "0.md is too large: at most 5 bytes are read of a file"),
    ],
)
def test_files_beyond_a_limit_are_left_out(tmp_path: Path, limit: str, bound: int, num_read: int, message: str) -> None:
    first_content = "123456" if limit == "file_bytes" else "12345"
    for number, content in enumerate((first_content, "12345", "12345")):
        write(tmp_path / f"{number}.md", content)
    skipped: list[str] = []
    # A limit of 16 is enough for all three files, whichever limit it is.
    assert len(read_documents([tmp_path], limits=replace(COMMAND_LINE, **{limit: 16}), on_skip=skipped.append)) == 3
    assert not skipped
    limits = replace(COMMAND_LINE, **{limit: bound})
    assert len(read_documents([tmp_path], limits=limits, on_skip=skipped.append)) == num_read
    assert len(skipped) == 1 and message in skipped[0]


def test_a_zip_member_is_named_by_its_path_below_the_zip(tmp_path: Path) -> None:
    write(tmp_path / "a.zip", samples.packed({"/etc/x.md": "out", "inner/good.md": "Fine.", "bad.pdf": "junk"}))
    skipped: list[str] = []
    assert [document.name for document in read_documents([tmp_path], on_skip=skipped.append)] == ["a.zip/inner/good.md"]
    assert [line.partition(" ")[0] for line in skipped] == [
        f"{tmp_path}/a.zip{end}" for end in ("//etc/x.md", "/bad.pdf")
    ]


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "REPORT_S", 0.0)
    for number in range(2):
        write(tmp_path / f"{number}.md", "text")
    lines: list[str] = []
    read_documents([tmp_path], on_progress=lines.append)
    assert lines == ["Read 1 of 2 documents", "Read 2 of 2 documents"]


def test_a_named_pipe_is_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    write(tmp_path / "a.md", "text")
    assert [document.name for document in read_documents([tmp_path])] == ["a.md"]


def test_a_link_to_itself_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "inside")
    (tmp_path / "loop.md").symlink_to("loop.md")
    skipped: list[str] = []
    assert [document.text for document in read_documents([tmp_path], on_skip=skipped.append)] == ["inside"]
    assert len(skipped) == 1 and "loop.md cannot be read" in skipped[0]


def test_an_index_in_the_folder_is_not_read_as_documents(tmp_path: Path) -> None:
    """`index . --out notes.index` writes the index into the folder whose documents it reads."""
    write(tmp_path / "a.md", "inside")
    for name in ("index.json", "documents.jsonl", "vectors.f16"):
        write(tmp_path / "notes.index" / name, '{"text": "twice"}')
    write(tmp_path / "other" / "index.json", '{"text": "mine"}')
    assert [document.text for document in read_documents([tmp_path])] == ["inside", "text: mine"]
