"""Generates files of every kind, valid and hostile."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

import docx
import openpyxl
import pptx
import pypdf

HTML = """<!doctype html><html><head><title>Owls &amp; mice</title><style>p {}</style></head><body>
<h1>Owls</h1><p>Owls see <b>at</b> night.</p><script>steal()</script>
<h2>Food</h2><ul><li><p>Mice</p></li><li>Voles</li></ul>
<table><tr><th>Bird</th><th>Eggs</th></tr><tr><td>Owl</td><td>5</td></tr></table><pre># no heading
  x = 1</pre></body></html>"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Tides\n", "Twice a day."]},
        {
            "cell_type": "code",
            "source": "print(6 * 7)",
            "outputs": [{"output_type": "stream", "text": ["42\n"]}, {"data": {"text/plain": "None"}}],
        },
    ]
}


def pdf(*pages: str, title: str = "", password: str = "") -> bytes:
    """Make a PDF by hand, with one line of text per page."""
    # The second object, the list of the pages, is filled in below, when all pages have their numbers.
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for words in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {font} /Contents {len(objects)} 0 R /MediaBox [0 0 612 792] >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    written, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(written)}\n%%EOF"
    content = f"{written}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")
    if not (title or password):
        return content
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(content))
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    return _saved(writer.write)


def word() -> bytes:
    """Make a Word document: a title, a section with a list, and a table."""
    document = docx.Document()
    document.add_heading("Bread", 0)
    document.add_paragraph("Yeast makes bread rise.")
    document.add_heading("Baking", 2)
    document.add_paragraph("Hot oven", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for cell, words in zip(table._cells, ["Flour", "Grams", "Rye", "500"], strict=True):
        cell.text = words
    return _saved(document.save)


def slides() -> bytes:
    """Make a presentation of two slides: one with a title and notes, one with a table."""
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[0])
    first.shapes.title.text = "Bridges"
    first.placeholders[1].text = "They carry roads."
    first.notes_slide.notes_text_frame.text = "Mention arches."
    second = deck.slides.add_slide(deck.slide_layouts[6])
    table = second.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for cell, words in zip(table.iter_cells(), ["Bridge", "Metres", "Forth", "2467"], strict=True):
        cell.text = words
    return _saved(deck.save)


def sheets() -> bytes:
    """Make a workbook of two sheets, one of them with a header."""
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    for row in (["Item", "Price"], ["Tea", 2.5], ["Coffee", 3]):
        book.active.append(row)
    book.create_sheet("Notes").append(["Closed on Monday."])
    return _saved(book.save)


def packed(members: Mapping[str, str | bytes]) -> bytes:
    """Make a zip of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def repacked(package: bytes, part: str, change: tuple[bytes, bytes]) -> bytes:
    """Copy an Office file with some bytes of one `part` replaced; `change` is (old, new)."""
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert change[0] in members[part]
    return packed({**members, part: members[part].replace(*change)})


def with_entity(package: bytes, part: str, root: bytes) -> bytes:
    """Copy an Office file so that one `part`, whose root element is `root`, declares an external entity."""
    declared = b'<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>'
    return repacked(package, part, (b"<" + root, declared + b"<" + root))


def bomb(size: int = 300_000_000) -> bytes:
    """Make a zip bomb: one text file that unpacks to `size` bytes."""
    return packed({"zeros.txt": b"a" * size})


def valid_files() -> dict[str, bytes]:
    """Make a valid file of each kind, by file name."""
    texts = {
        "notes.txt": "First line.\n\nThird line: whales sing.",
        "latin.txt": "Der Käse reift im März.".encode("latin-1"),
        "guide.md": "# Guide\nIntro.\n\n## Moon\n\nThe moon pulls the sea.",
        "page.html": HTML,
        "table.csv": "Name,Born\nAda,1815\nGrace,1906\n",
        "data.json": json.dumps([{"city": "Oslo", "size": {"people": 700_000}}, {"city": "Bergen"}]),
        "log.jsonl": '{"event": "start"}\n\n{"event": "stop"}\n',
        "code.py": "# a comment\n\ndef double(x):\n    return 2 * x\n",
        "book.ipynb": json.dumps(NOTEBOOK),
    }
    files = {"paper.pdf": pdf("Clocks tick.", "Pianos ring.", title="On clocks"), "letter.docx": word()}
    files |= {"talk.pptx": slides(), "prices.xlsx": sheets()}
    files["pack.zip"] = packed({"inner/rice.md": "# Rice\nRice grows.", "deep.zip": packed({"salt.txt": "Salt."})})
    return {**{name: text if isinstance(text, bytes) else text.encode() for name, text in texts.items()}, **files}


def _saved(save: object) -> bytes:
    stream = io.BytesIO()
    save(stream)  # type: ignore[operator]
    return stream.getvalue()
