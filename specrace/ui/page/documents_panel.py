"""The panel for the visitor's own documents: the field that uploads them, their passages, and the panel's button."""

from __future__ import annotations

import html
from collections import defaultdict
from dataclasses import dataclass

import gradio as gr

from specrace.retrieval.passages import Passage
from specrace.ui.helper.upload_reader import Upload
from specrace.ui.visitor_limits import MAX_UPLOAD_FILES

BUTTON = "Your documents"
# JavaScript that Gradio runs: calls of the functions that main.js offers.
TOGGLE = "() => specrace.toggleDocuments()"
# Called when the files in the field have changed. `orig_name` is a file's name on the visitor's machine.
FILES_CHANGED = "(files) => specrace.documentsChanged((files ?? []).map((file) => file.orig_name))"
# How many passages are listed, and how many characters of each.
MAX_LISTED, MAX_SHOWN = 300, 160


@dataclass(frozen=True)
class DocumentsPanel:
    """The panel's components. `passages` lists the passages of the files."""

    files: gr.File
    passages: gr.HTML


def build_documents(*, visible: bool) -> DocumentsPanel:
    """Build the panel, closed; `visible`: whether visitors may upload documents."""
    with gr.Column(visible=visible, elem_id="documents-host"), gr.Column(elem_id="documents"), gr.Row():
        files = gr.File(
            # The field accepts any type: if it refused one file, Gradio would drop all of them.
            file_count="multiple",
            label=f"Drop documents: txt, md, html, pdf, docx, … up to {MAX_UPLOAD_FILES} files, 2 MB in all",
            height=200,
            elem_id="files",
        )
        passages = gr.HTML(list_passages(None), elem_id="own-passages")
    return DocumentsPanel(files, passages)


def button_text(upload: Upload | None) -> str:
    """The button's text, with the number of the visitor's documents in use, if any."""
    if upload is None:
        return BUTTON
    _, passages = upload.parse()
    names = {passage.document for passage in passages}
    return f"{BUTTON}: {len(names)}"


def list_passages(upload: Upload | None) -> str:
    """HTML that lists the passages of an upload by document, at most MAX_LISTED."""
    if upload is None:
        return (
            "<p>Races search the server's documents. Add your own here, or drop them anywhere on the page: then races "
            "search only those. They stay in this tab, also over a reload, until it is closed; nobody else sees "
            "them.</p>"
        )
    _, passages = upload.parse()
    by_document: defaultdict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        by_document[passage.document].append(passage)
    listed = 0
    parts = []
    for name, group in by_document.items():
        lines = "".join(map(_list_item, group[: max(0, MAX_LISTED - listed)]))
        listed += len(group)
        noun = "passage" if len(group) == 1 else "passages"
        parts.append(
            f"<details><summary>{html.escape(name)}: {len(group):,} {noun}</summary><ol>{lines}</ol></details>"
        )
    more = f"<p>The first {MAX_LISTED} of {listed:,} passages are listed.</p>" if listed > MAX_LISTED else ""
    return f"<p>Races search these passages only.</p>{''.join(parts)}{more}"


def _list_item(passage: Passage) -> str:
    text = " ".join(passage.text.split())
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    place = f"<small>{html.escape(passage.place)}</small> " if passage.place else ""
    return f'<li dir="auto">{place}{html.escape(shown)}</li>'
