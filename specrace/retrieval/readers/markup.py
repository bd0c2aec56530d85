"""Reads HTML as markdown: headings, list items, table rows and paragraphs."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

from specrace.core.blank import is_blank
from specrace.retrieval.limits import ReadingLimits
from specrace.retrieval.readers.reading import Blocks, Reading, decode
from specrace.retrieval.readers.text import MAX_TITLE_CHARS, from_markdown
from specrace.retrieval.sentences import word_set

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset=[\"']?([\w-]{2,20})", re.IGNORECASE)
# The declaration of the charset is searched for in this many bytes at the beginning.
_HEAD_BYTES = 4096
_INVISIBLE = frozenset({"script", "style", "template", "noscript", "svg", "select", "textarea"})
# A menu's links are useless to search and to draft from.
_MENU = "nav"
# A menu that is never closed ends where one of these begins.
_AFTER_MENU = frozenset({"main", "article", "h1", "footer"})
_HEADINGS = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
_INLINE = word_set(
    "a abbr b bdi bdo cite code data dfn em font i kbd mark q s samp small span strong sub sup time tt u var wbr img "
    "label ins del big"
)
# (opening, end for html.parser) of a comment, of Microsoft's conditional sections, and of other marked sections.
_SECTIONS = (
    (re.compile("<(?=!--)"), re.compile(r"--\s*>")),
    (re.compile(r"<(?=!\[(?:if|else|endif))", re.IGNORECASE), re.compile(r"\]\s*>")),
    (re.compile(r"<(?=!\[(?!if|else|endif))", re.IGNORECASE), re.compile(r"\]\s*\]\s*>")),
)


def read_html(content: bytes, limits: ReadingLimits) -> Reading:
    """Read a page's visible text, with headings as addresses; its title is the first heading, else <title>.

    Menus are left out, unless there is nothing else.
    """
    html, unfinished = _split_unfinished(_decode(content))
    page = _read_page(_Page(limits), html, unfinished)
    if is_blank(page.blocks.text):
        page = _read_page(_Page(limits, reads_menus=True), html, unfinished)
    reading = from_markdown(page.blocks.text)
    return replace(reading, title=reading.title or " ".join(page.title.split())[:MAX_TITLE_CHARS])


def _read_page(page: _Page, html: str, unfinished: str) -> _Page:
    """Feed the two parts of a text (see `_split_unfinished`) to `page`, and return `page`."""
    page.feed(html)
    page.close()
    page.handle_data(unescape(unfinished))
    page.end_block()
    return page


def _decode(content: bytes) -> str:
    """Decode a page as UTF-8, else in the encoding that it declares, else by `decode`. Raises Refusal."""
    declared = _CHARSET.search(content[:_HEAD_BYTES])
    for encoding in ("utf-8-sig", declared[1].decode() if declared else "utf-8"):
        with contextlib.suppress(LookupError, ValueError):
            return content.decode(encoding)
    return decode(content)


def _split_unfinished(text: str) -> tuple[str, str]:
    """Split a page into what html.parser reads in linear time, and the text after it, which has no complete tag.

    html.parser searches for the end of everything that begins with "<". In "<a <a <a", where none has an end, it would
    search the rest of the text once for each, in quadratic time.
    """
    for opener, end in _SECTIONS:
        last_end = max((match.start() for match in end.finditer(text)), default=0)
        text = text[:last_end] + opener.sub("&lt;", text[last_end:])
    # After the last ">" no tag is complete.
    unfinished = text.find("<", text.rfind(">") + 1)
    return (text, "") if unfinished < 0 else (text[:unfinished], text[unfinished:])


class _Page(HTMLParser):
    """Collects the blocks and the title of a page."""

    def __init__(self, limits: ReadingLimits, *, reads_menus: bool = False) -> None:
        super().__init__(convert_charrefs=True)
        self._reads_menus, self._menu_depth = reads_menus, 0
        self.blocks, self.title = Blocks(limits), ""
        self._words: list[str] = []
        self._prefix = ""
        self._invisible_depth = 0
        self._in_pre = False
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a block, unless the tag is inline."""
        if tag == _MENU:
            self.end_block()
            self._menu_depth += 1
        elif tag in _AFTER_MENU:
            self._menu_depth = 0
        if tag in _INVISIBLE:
            self._invisible_depth += 1
        elif tag == "title":
            # Only the first title counts.
            self._in_title = not self.title
        elif tag in ("td", "th") and self._words:
            self._words.append(" | ")
        elif tag == "br":
            self._words.append("\n" if self._in_pre else " ")
        elif tag not in _INLINE and tag not in ("td", "th"):
            # In <li><p> the paragraph is the list item, so it gets the item's "- ".
            outer_prefix = self._prefix if tag == "p" and not self._words else ""
            self.end_block()
            self._prefix = _HEADINGS.get(tag, "- " if tag == "li" else outer_prefix)
            self._in_pre = self._in_pre or tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        """End a block, unless the tag is inline."""
        if tag in _INVISIBLE:
            self._invisible_depth = max(0, self._invisible_depth - 1)
        elif tag == "title":
            self._in_title = False
        elif tag not in _INLINE and tag not in ("td", "th"):
            self.end_block()
            self._in_pre = self._in_pre and tag != "pre"
        if tag == _MENU:
            self._menu_depth = max(0, self._menu_depth - 1)

    def handle_data(self, data: str) -> None:
        """Collect text between tags, if it is visible."""
        if self._in_title:
            self.title += data
        elif not self._invisible_depth and (self._reads_menus or not self._menu_depth):
            self._words.append(data)

    def end_block(self) -> None:
        """Add the text collected since the last block as a block."""
        text = "".join(self._words)
        if self._in_pre and text.strip():
            code = text.strip("\n")
            self.blocks.add(f"```\n{code}\n```")
        elif text.strip():
            self.blocks.add(self._prefix + " ".join(text.split()))
        self._words, self._prefix = [], ""
