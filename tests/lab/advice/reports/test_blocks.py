"""Reports in HTML and Markdown: texts of logs stay texts, and an HTML report allows only its own style."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from specrace.lab.advice.reports.blocks import Bullets, Code, Paragraph, Report, Section, Table, to_html, to_markdown

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></code><iframe src=//x>",
    "[a](javascript:alert(1)) ![b](http://x/y)",
    "`code` | cell | **bold** _it_ ~~no~~ &lt; <http://x>",
    "# no heading",
    "- no list",
    "1. no list",
    "--- \n new line",
    "```\n# out of the fence",
    "right\u202eleft\x1b[31m",
)
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "p", "ul", "li", "pre", "code",
    "div", "table", "caption", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip


def report(text: str) -> Report:
    """A report with this text in every field that takes text."""
    blocks = [Paragraph(text), Bullets([text, "b"]), Code(text), Table(text, ("a", text), [(text, "1"), ("2", text)])]
    return Report(text, text, [Section(text, blocks)])


class Tags(HTMLParser):
    """Collects the tags of an HTML text, with their attributes, in `seen`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


@pytest.mark.parametrize("text", HOSTILE)
def test_no_tag_or_attribute_in_html_comes_from_a_text(text: str) -> None:
    hostile_page, plain_page = to_html(report(text)), to_html(report("x"))
    assert {tag for tag, _ in Tags(hostile_page).seen} <= TAGS
    assert Tags(hostile_page).seen == Tags(plain_page).seen
    assert "\u202e" not in hostile_page and "\x1b" not in hostile_page


def test_the_policy_allows_the_style_and_nothing_else() -> None:
    rendered = to_html(report("x"))
    (style,) = re.findall(r"<style>(.*?)</style>", rendered, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [attributes["content"] for tag, attributes in Tags(rendered).seen if "http-equiv" in attributes]
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style and "@import" not in style


@pytest.mark.parametrize("text", HOSTILE)
def test_no_markup_in_markdown_comes_from_a_text(text: str) -> None:
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    # The types of all tokens and of the tokens in them, once with the hostile text and once with a plain one.
    kinds = [
        [token.type for token in parser.parse(to_markdown(report(words)))]
        + [child.type for token in parser.parse(to_markdown(report(words))) for child in token.children or ()]
        for words in (text, "x")
    ]
    # Escaped letters are tokens of their own.
    hostile_kinds, plain_kinds = (
        [kind for kind in token_kinds if kind not in ("text", "text_special")] for token_kinds in kinds
    )
    assert hostile_kinds == plain_kinds


def test_code_is_not_changed() -> None:
    text = "speculative_config:\n  a: 1 <2> `x` | *y*"
    assert f"```\n{text}\n```" in to_markdown(report(text))
    assert "speculative_config:\n  a: 1 &lt;2&gt; `x` | *y*</code>" in to_html(report(text))
