"""Word documents: content that python-docx does not see is read, once, and what is not read is counted."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml

from specrace.retrieval.documents import Document, read_documents
from specrace.retrieval.limits import COMMAND_LINE
from specrace.retrieval.readers.archives import read_content
from specrace.retrieval.readers.reading import Reading

NAMESPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    }.items()
)
CHART = "http://schemas.openxmlformats.org/drawingml/2006/chart"


def run(text: str) -> str:
    """Word's XML for a run: some text with one formatting."""
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*content: str) -> str:
    return f"<w:p>{''.join(content)}</w:p>"


def cell(text: str) -> str:
    return f"<w:tc>{paragraph(run(text))}</w:tc>"


def control(content: str, properties: str = "") -> str:
    """A content control around this XML."""
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"


def box(text: str) -> str:
    """A text box as Word writes it: once for new programs, once for old ones."""
    content = f"<w:txbxContent>{paragraph(run(text))}</w:txbxContent>"
    return (
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:txbx>{content}</wps:txbx></w:drawing>'
        f"</mc:Choice><mc:Fallback><w:pict><v:textbox>{content}</v:textbox></w:pict></mc:Fallback>"
        "</mc:AlternateContent></w:r>"
    )


def make(*body: str, notes: dict[str, str] | None = None) -> bytes:
    """A document with this content after the heading "Ferries"; `notes`: kind of part ("footnotes") -> its XML."""
    document = docx.Document()
    document.add_heading("Ferries", 0)
    section = document.element.body.sectPr
    for xml in body:
        section.addprevious(parse_xml(xml.replace(">", f" {NAMESPACES}>", 1)))
    for kind, xml in (notes or {}).items():
        root = f"<w:{kind} {NAMESPACES}>{xml}</w:{kind}>".encode()
        part = Part(PackURI(f"/word/{kind}.xml"), "application/xml", root, document.part.package)
        document.part.relate_to(part, f"{RELATIONSHIP_TYPE.OFFICE_DOCUMENT.rpartition('/')[0]}/{kind}")
    return saved(document)


def saved(document: docx.document.Document) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def read(content: bytes) -> tuple[str, list[str]]:
    """The text, and the problems."""
    results = [result for _, result in read_content("a.docx", content, COMMAND_LINE)]
    text = next(result.text for result in results if isinstance(result, Reading))
    return text.strip(), [result for result in results if isinstance(result, str)]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (control(paragraph(run("They leave at six."))), "They leave at six."),
        (control(control(paragraph(run("They leave at six.")))), "They leave at six."),
        (paragraph(run("They leave at "), control(run("six")), run(".")), "They leave at six."),
        (paragraph(run("They leave at "), f'<w:ins w:id="1" w:author="E">{run("six")}</w:ins>'), "They leave at six"),
        (f'<w:ins w:id="1" w:author="E">{paragraph(run("They leave at six."))}</w:ins>', "They leave at six."),
        (paragraph(f'<w:fldSimple w:instr="REF a">{run("six")}</w:fldSimple>', run(" boats")), "six boats"),
        (paragraph(f'<w:smartTag w:element="t">{run("six")}</w:smartTag>', run(" boats")), "six boats"),
        (paragraph(run("Six boats."), box("They are red.")), "Six boats.\n\nThey are red."),
        (
            "<w:p><w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>とうきょう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東京</w:t>"
            "</w:r></w:rubyBase></w:ruby></w:r></w:p>",
            "東京",
        ),
        (
            "<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/><w:gridCol/></w:tblGrid>"
            f"<w:tr>{cell('Boat')}{cell('Seats')}</w:tr>"
            + control("<w:tr>" + control(cell("Ada")) + cell("40") + "</w:tr>")
            + "</w:tbl>",
            "Boat: Ada; Seats: 40",
        ),
        (
            "<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid><w:tr><w:tc>"
            f"<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid><w:tr><w:tc>{paragraph(run('inner'))}</w:tc></w:tr>"
            f"</w:tbl>{paragraph(run('outer'))}</w:tc></w:tr></w:tbl>",
            "inner outer",
        ),
    ],
)
def test_wrapped_text_is_read_once(body: str, text: str) -> None:
    assert read(make(body)) == (text, [])


def test_deleted_and_moved_text_is_not_read_where_it_was() -> None:
    move = f'<w:moveFrom w:id="2" w:author="E">{run("Red. ")}</w:moveFrom>'
    deletion = '<w:del w:id="1" w:author="E"><w:r><w:delText>five</w:delText></w:r></w:del>'
    arrival = f'<w:moveTo w:id="3" w:author="E">{run("Red. ")}</w:moveTo>'
    text, problems = read(make(paragraph(move, run("They leave at "), deletion, run("six. "), arrival)))
    assert text == "They leave at six. Red."
    assert problems == ["is read without its 1 tracked deletion."]


def test_a_deleted_row_is_not_read() -> None:
    row = "<w:tr>{}<w:tc>" + paragraph(run("{}")) + "</w:tc></w:tr>"
    rows = row.format("", "Ada") + row.format('<w:trPr><w:del w:id="1" w:author="E"/></w:trPr>', "Eve")
    assert read(make(f"<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid>{rows}</w:tbl>"))[0] == "Ada"


def test_a_placeholder_is_not_text() -> None:
    placeholder = control(run("Click here to enter text."), "<w:showingPlcHdr/>")
    assert read(make(paragraph(run("Boat: "), placeholder))) == ("Boat:", [])


def test_notes_follow_the_paragraph_or_table_that_refers_to_them() -> None:
    note = '<w:{0} w:id="{1}">' + paragraph(run("{2}")) + "</w:{0}>"
    reference = '<w:r><w:{}Reference w:id="{}"/></w:r>'
    row = f"<w:tr><w:tc>{paragraph(run('Ada'), reference.format('footnote', 7))}</w:tc></w:tr>"
    text, problems = read(
        make(
            paragraph(run("Six boats."), reference.format("footnote", 9), reference.format("endnote", 2)),
            f"<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid>{row}</w:tbl>",
            paragraph(run("The end.")),
            notes={
                # Word stores the line above the notes as a note to which nothing refers.
                "footnotes": note.format("footnote", 0, "separator")
                + note.format("footnote", 7, "Built in 1962.")
                + note.format("footnote", 9, "Two of them are red."),
                "endnotes": note.format("endnote", 2, "Counted in May."),
            },
        )
    )
    assert text.split("\n\n") == [
        "Six boats.",
        "Footnote 1: Two of them are red.",
        "Endnote 1: Counted in May.",
        "Ada",
        "Footnote 2: Built in 1962.",
        "The end.",
    ]
    assert problems == []


def test_headers_and_footers_are_read_once_with_an_address_of_their_own(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Ferries", 1)
    document.add_paragraph("They leave at six.")
    for is_first in (True, False):
        section = document.sections[0] if is_first else document.add_section()
        section.header.is_linked_to_previous = section.footer.is_linked_to_previous = False
        section.header.paragraphs[0].text = "Harbour office, draft 4"
        section.footer.paragraphs[0].text = "12"
    (tmp_path / "a.docx").write_bytes(saved(document))
    reread: Document = read_documents([tmp_path / "a.docx"])[0]
    assert (reread.title, reread.text) == ("Ferries", "\nThey leave at six.\n\nHarbour office, draft 4")
    assert [(reread.text[mark.start :], mark.address) for mark in reread.marks] == [
        ("Harbour office, draft 4", "page header")
    ]


def test_what_is_not_read_is_counted() -> None:
    equation = paragraph("<m:oMath><m:r><m:t>E</m:t></m:r></m:oMath>")
    chart = paragraph(f'<w:r><w:drawing><a:graphic><a:graphicData uri="{CHART}"/></a:graphic></w:drawing></w:r>')
    comments = f'<w:comment w:id="1">{paragraph(run("Really?"))}</w:comment>'
    body = (paragraph(run("Six boats.")), equation, equation, chart, paragraph("<w:r><w:object/></w:r>"))
    text, problems = read(make(*body, notes={"comments": comments}))
    assert text == "Six boats."
    assert problems == ["is read without its 1 comment, 2 equations, 1 chart and 1 embedded file."]


def test_a_thousand_nested_controls_are_read_once() -> None:
    body = control("".join(control(paragraph(run(f"Boat {number}."))) for number in range(1000)))
    assert read(make(body))[0].count("Boat") == 1000


def test_a_document_with_broken_notes_is_refused_with_a_sentence() -> None:
    content = make(paragraph(run("Six boats.")), notes={"footnotes": ""})
    broken = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"<w:footnotes" if name == "word/footnotes.xml" else source.read(name))
    assert [result for _, result in read_content("a.docx", broken.getvalue(), COMMAND_LINE)] == [
        "is a broken Office file: save it again."
    ]
