"""Rules of the style sheets that a browser can apply without looking at the whole page."""

from __future__ import annotations

import re

import pytest

from specrace.ui.stage.parts import STYLES, read_static


def split(selector: str, separators: str) -> list[str]:
    """The parts of a selector between `separators`, which do not count inside brackets."""
    parts, depth = [""], 0
    for character in selector:
        depth += (character in "([") - (character in ")]")
        if character in separators and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def slow_selectors(sheet: str) -> list[str]:
    """The selectors with `:has()` for which a browser restyles or searches too much.

    A browser keeps one list of the elements that `:has()` rules may style. A rule that ends in an element without id,
    class or attribute, such as `span`, puts all elements of this kind on the list, whatever changed. And `:has()` on
    the body or on `.arena`, which holds the lanes' texts, is evaluated again whenever a token is drawn.
    """
    rules = re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL)
    lists = [text for text in re.findall(r"([^{};]+)\{", rules) if text.strip()[0] != "@"]
    selectors = [selector for text in lists for selector in split(text, ",")]
    slow = []
    for selector in selectors:
        compounds = split(selector, " >~+")
        has_indices = [index for index, compound in enumerate(compounds) if ":has(" in compound]
        last_is_named = re.search(r"[.#\[]", compounds[-1])
        is_broad = any(re.match(r"body|[^:]*\.arena", compounds[index]) for index in has_indices)
        if is_broad or (has_indices and has_indices[0] < len(compounds) - 1 and not last_is_named):
            slow.append(selector)
    return slow


@pytest.mark.parametrize("sheet", STYLES)
def test_no_rule_makes_a_browser_restyle_the_page_for_a_token(sheet: str) -> None:
    assert slow_selectors(read_static(sheet)) == []


@pytest.mark.parametrize(
    "rule",
    [
        "body:has(.stage[data-running]) #race { color: red; }",
        "@media (width > 1px) { #stage-host .arena:not(:has(.photo)) .key { color: red; } }",
        "#row:has([data-state='failed']) > * { flex: 1; }",
        ".key { color: red; } .podium:has(+ .tally) span { color: red; }",
    ],
)
def test_slow_rules_are_recognized(rule: str) -> None:
    assert len(slow_selectors(rule)) == 1


def test_a_rule_for_named_elements_is_not_slow() -> None:
    rules = ".podium:has(> .place) .lane-title, .podium:has(.place), .podium li { color: red; }"
    assert slow_selectors(rules) == []
