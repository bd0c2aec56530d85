"""Every kind of file: the text that is read from it, and the address of each phrase."""

from __future__ import annotations

from pathlib import Path

import pytest

from specrace.retrieval.addresses import Addresses
from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.limits import COMMAND_LINE
from specrace.retrieval.passages import split_passages
from specrace.retrieval.readers.archives import read_content
from specrace.retrieval.readers.kinds import KINDS
from specrace.retrieval.readers.reading import Blocks, Mark, Reading
from specrace.retrieval.readers.tables import add_rows
from tests.retrieval.readers import samples

# (file, its title, a phrase in it, the phrase's address).
PHRASES = [
    ("notes.txt", "notes", "whales", "line 3"),
    ("latin.txt", "latin", "Käse", "line 1"),
    ("guide.md", "Guide", "pulls the sea", "Moon"),
    ("guide.md", "Guide", "Intro", ""),
    ("page.html", "Owls", "Owls see at night.", ""),
    ("page.html", "Owls", "- Mice\n\n- Voles", "Food"),
    ("page.html", "Owls", "Owl | 5", "Food"),
    ("page.html", "Owls", "# no heading\n  x = 1", "Food"),
    ("table.csv", "table", "Name: Grace; Born: 1906", "line 3"),
    ("data.json", "data", "city: Oslo; size.people: 700000", "item 1"),
    ("data.json", "data", "Bergen", "item 2"),
    ("log.jsonl", "log", "event: stop", "line 3"),
    ("code.py", "code", "return 2", "line 4"),
    ("book.ipynb", "Tides", "Twice", "cell 1"),
    ("book.ipynb", "Tides", "42", "cell 2"),
    ("paper.pdf", "On clocks", "Clocks tick.", "page 1"),
    ("paper.pdf", "On clocks", "Pianos ring.", "page 2"),
    ("letter.docx", "Bread", "Yeast", ""),
    ("letter.docx", "Bread", "- Hot oven", "Baking"),
    ("letter.docx", "Bread", "Flour: Rye; Grams: 500", "Baking"),
    ("talk.pptx", "Bridges", "They carry roads.", "slide 1"),
    ("talk.pptx", "Bridges", "Mention arches.", "slide 1"),
    ("talk.pptx", "Bridges", "Bridge: Forth; Metres: 2467", "slide 2"),
    ("prices.xlsx", "prices", "Item: Tea; Price: 2.5", "sheet Prices, row 2"),
    ("prices.xlsx", "prices", "Closed on Monday.", "sheet Notes, row 1"),
    ("pack.zip/inner/rice.md", "Rice", "Rice grows.", ""),
    ("pack.zip/deep.zip/salt.txt", "salt", "Salt.", "line 1"),
]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """File name -> the document read from it, for a valid file of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, content in samples.valid_files().items():
        (folder / name).write_bytes(content)
    skipped: list[str] = []
    by_name = {document.name: document for document in read_documents([folder], on_skip=skipped.append)}
    # One file, the zip, holds two documents.
    assert not skipped and len(by_name) == len(samples.valid_files()) + 1
    return by_name


@pytest.mark.parametrize(("name", "title", "words", "address"), PHRASES)
def test_each_phrase_has_its_address(
    documents: dict[str, Document], name: str, title: str, words: str, address: str
) -> None:
    document = documents[name]
    start = document.text.index(words)
    assert document.title == title
    assert Addresses(document.text, document.marks).describe(start, start + len(words)) == address


def test_scripts_and_styles_are_left_out(documents: dict[str, Document]) -> None:
    assert "steal" not in documents["page.html"].text and "p {}" not in documents["page.html"].text


def test_every_kind_has_a_sample() -> None:
    assert {kind.name for kind in KINDS.values()} == {KINDS[Path(name).suffix].name for name in samples.valid_files()}


@pytest.mark.parametrize("name", sorted(samples.valid_files()))
def test_the_first_bytes_outweigh_the_suffix(name: str) -> None:
    """A zip or PDF that is named .md is read like one with its right name; other files are read as Markdown."""
    content = samples.valid_files()[name]
    binary = content.startswith((b"PK", b"%PDF"))
    with_right_name = list(read_content(name, content, COMMAND_LINE))
    with_wrong_name = list(read_content("x.md", content, COMMAND_LINE))
    assert (with_right_name == with_wrong_name) is (binary or Path(name).suffix == ".md")


@pytest.mark.parametrize("name", sorted(samples.valid_files()))
def test_a_truncated_or_corrupted_file_is_read_in_part_or_reported(name: str) -> None:
    content = samples.valid_files()[name]
    for size in range(0, len(content), max(1, len(content) // 12)):
        assert list(read_content(name, content[:size], COMMAND_LINE))
        noise = bytes(255 - byte for byte in content[size : size + 40])
        assert list(read_content(name, content[:size] + noise + content[size + 40 :], COMMAND_LINE))


def test_a_passage_has_the_address_of_its_text() -> None:
    text = "One.\n\nTwo.\n\n" + "word " * 120 + "\n\nLast."
    marks = (Mark(0, "page 1"), Mark(6, "page 2"), Mark(text.index("word"), "page 3"), Mark(text.index("Last"), "end"))
    addresses = [passage.place for passage in split_passages(Document("a.pdf", "A", text, marks))]
    assert addresses == ["page 1–2", "page 3", "page 3 – end"]


def test_line_numbers_count_from_the_start_of_the_file() -> None:
    readings = list(read_content("a.txt", b"\n# Title\nthree\n\nfive", COMMAND_LINE))
    ((_, reading),) = readings
    assert not isinstance(reading, str) and reading.title == "Title"
    addresses = Addresses(reading.text, reading.marks)
    for word, address in (("three", "line 3"), ("five", "line 5")):
        start = reading.text.index(word)
        assert addresses.describe(start, start + 1) == address


@pytest.mark.parametrize("name", ["a.txt", "a.log", "a.rst"])
def test_a_shell_prompt_in_plain_text_is_not_a_title(name: str) -> None:
    content = "one\n# apt install foo\ntwo" if name != "a.log" else "# apt install foo\ntwo"
    ((_, reading),) = read_content(name, content.encode(), COMMAND_LINE)
    assert not isinstance(reading, str) and (reading.title, reading.text) == ("", content)


@pytest.mark.parametrize(
    ("name", "table", "rows"),
    [
        ("a.csv", ",name,age\n0,Alice,30", ["0; name: Alice; age: 30"]),
        ("a.csv", "name,age,\nAlice,30,", ["name: Alice; age: 30"]),
        (
            "a.csv",
            "Report 2024,,\n,,\nname,age,city\nAlice,30,Paris",
            ["Report 2024", "name: Alice; age: 30; city: Paris"],
        ),
        ("a.csv", "Alice,30\nBob,31", ["Alice; 30", "Bob; 31"]),
        ("a.csv", "a,,,,\n1,2,3,4,5", ["a", "1; 2; 3; 4; 5"]),
        ("a.tsv", "name\tnote, long\nBrot\t2,50", ["name: Brot; note, long: 2,50"]),
    ],
)
def test_cells_are_labelled_with_their_column_names(name: str, table: str, rows: list[str]) -> None:
    ((_, reading),) = read_content(name, table.encode(), COMMAND_LINE)
    assert not isinstance(reading, str) and [row for row in reading.text.split("\n") if row] == rows


def test_the_docs_list_the_kinds() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"`{suffix}`" in page for suffix in KINDS if KINDS[suffix].name != "source code")


@pytest.mark.parametrize(
    ("content", "row"),
    [
        (
            "id,said\n" + "1,plain\n" * 700 + '2,"he said ""stop, now"" and left"\n',
            'id: 2; said: he said "stop, now" and left',
        ),
        ("id,said\n" + "1,it was 'fine'\n" * 9 + '2,"a, b"\n', "id: 2; said: a, b"),
        ("id;said\n1;plain\n2;" + "x" * 200_000 + "\n", "id: 2; said: " + "x" * 200_000),
    ],
)
def test_standard_quoting_applies_whatever_the_first_rows_suggest(tmp_path: Path, content: str, row: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    (document,) = read_documents([tmp_path])
    assert document.text.endswith(row)


def test_a_table_with_only_a_header_has_its_own_address() -> None:
    blocks = Blocks(COMMAND_LINE)
    add_rows(blocks, [("sheet A, row 1", ["name", "born"]), ("sheet A, row 2", ["Ada", "1815"])])
    add_rows(blocks, [("sheet B, row 1", ["city", "land"])])
    assert [mark.address for mark in blocks.reading().marks] == ["sheet A, row 2", "sheet B, row 1"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<nav><a>Home</a> <a>Policies</a></nav><p>Owls hoot.</p>", "Owls hoot."),
        ("<nav><a>Home</a><nav><a>Deep</a></nav><a>More</a></nav><p>Owls hoot.</p>", "Owls hoot."),
        # A menu that is never closed must not hide the page.
        ("<nav><a>Home</a><main><p>Owls hoot.</p></main>", "Owls hoot."),
        ("<nav><a>Home</a></nav>", "Home"),
    ],
)
def test_the_menu_of_a_web_page_is_left_out_unless_there_is_nothing_else(page: str, text: str) -> None:
    ((_, reading),) = read_content("page.html", page.encode(), COMMAND_LINE)
    assert isinstance(reading, Reading) and reading.text.strip() == text
