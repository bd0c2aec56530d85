"""The registry of file kinds: each kind's suffixes and reader, and how a file's first bytes reveal its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.markup import read_html
from specrace.retrieval.readers.notebooks import read_notebook
from specrace.retrieval.readers.office import read_pptx, with_package_check
from specrace.retrieval.readers.pdf import read_pdf
from specrace.retrieval.readers.reading import Reading, Refusal
from specrace.retrieval.readers.tables import read_csv, read_json, read_json_lines, read_tsv, read_xlsx
from specrace.retrieval.readers.text import read_code, read_markdown, read_plain
from specrace.retrieval.readers.unpacking import open_zip
from specrace.retrieval.readers.word import read_docx

_CODE_SUFFIXES = (
    ".bash .c .cc .cfg .cpp .cs .css .cu .go .h .hpp .ini .java .jl .js .jsx .kt .lua .mjs .php .pl .proto .py .pyi "
    ".r .rb .rs .scala .sh .sql .swift .tex .toml .ts .tsx .xml .yaml .yml"
)


Reader = Callable[[bytes, ReadingLimits], Reading]


@dataclass(frozen=True)
class Kind:
    """A kind of file. `read` reads a file's bytes; it is None for a zip, whose members are read."""

    name: str
    suffixes: tuple[str, ...]
    read: Reader | None
    # Whether `read` is a parser, which must run in the sandbox. A reader that only decodes text need not.
    parsed: bool = True


_KINDS = (
    Kind("markdown", (".md", ".markdown"), read_markdown, parsed=False),
    Kind("text", (".txt", ".rst"), read_plain, parsed=False),
    # Read like code, because "# ..." in a log is not a heading.
    Kind("text", (".log",), read_code, parsed=False),
    Kind("source code", tuple(_CODE_SUFFIXES.split()), read_code, parsed=False),
    Kind("HTML", (".html", ".htm"), read_html),
    Kind("PDF", (".pdf",), read_pdf),
    Kind("Word", (".docx",), with_package_check(read_docx)),
    Kind("PowerPoint", (".pptx",), with_package_check(read_pptx)),
    Kind("Excel", (".xlsx",), with_package_check(read_xlsx)),
    Kind("CSV", (".csv",), read_csv),
    Kind("CSV", (".tsv",), read_tsv),
    Kind("JSON", (".json",), read_json),
    Kind("JSON lines", (".jsonl", ".ndjson"), read_json_lines),
    Kind("notebook", (".ipynb",), read_notebook),
    Kind("zip", (".zip",), None),
)
# Suffix -> kind.
KINDS = {suffix: kind for kind in _KINDS for suffix in kind.suffixes}
KIND_NAMES = "txt, md, html, pdf, docx, pptx, xlsx, csv, json, jsonl, ipynb, source code or zip"

# A member of the zip that an Office file is, by which its kind is recognised -> the kind's suffix.
_OFFICE_PARTS = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx", "xl/workbook.xml": ".xlsx"}
# The first bytes of OLE files (old or encrypted Office files), zips and PDFs.
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_PDF = b"%PDF-"


def kind_of(name: str, content: bytes) -> Kind:
    """A file's kind, by its first bytes, else by its suffix. Raises Refusal."""
    if content.startswith(_OLE):
        raise Refusal("is encrypted, or an old Office file: save it as .docx, .pptx or .xlsx without a password.")
    if content.startswith(_PDF):
        return KINDS[".pdf"]
    if content.startswith(_ZIPS):
        with open_zip(content) as archive:
            parts = _OFFICE_PARTS.keys() & set(archive.namelist())
        return KINDS[_OFFICE_PARTS[min(parts)] if parts else ".zip"]
    kind = KINDS.get(PurePosixPath(name).suffix.lower())
    if kind is None:
        raise Refusal(f"is not a {KIND_NAMES} file: save it as one of these.")
    return kind
