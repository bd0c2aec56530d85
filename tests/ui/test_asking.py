from __future__ import annotations

from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.ui.asking import MAX_NEW_TOKENS, read_asking, read_link


def test_what_the_page_sends_by_itself_is_fine() -> None:
    asked = read_asking("Why?", ["trie", "vanilla"], 160, 0, 1, 0, "auto", 4)
    assert asked.spec.lanes == ("vanilla", "trie")
    assert (asked.spec.num_draft, asked.spec.max_new_tokens, asked.top) == (None, 160, 4)


def test_lanes_come_in_the_registry_s_order_with_vanilla() -> None:
    names = [name for name in METHODS if name != "vanilla"][:5]
    assert read_asking("Why?", list(reversed(names))).spec.lanes == ("vanilla", *names)


@pytest.mark.parametrize(("given", "expected"), [("8", 8), (8.0, 8), (0, 0), ("AUTO", None), ("", None), (None, None)])
def test_draft_tokens_are_a_number_or_auto(given: Any, expected: int | None) -> None:
    assert read_asking("Why?", ["trie"], num_draft=given).spec.num_draft == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"question": "  "}, "no question"),
        ({"question": None}, "no question"),
        ({"question": ["x"]}, "no question"),
        ({"question": "x" * 2001}, "2001 characters"),
        ({"lanes": []}, "0 lanes"),
        ({"lanes": "trie"}, "list of names"),
        ({"lanes": [1]}, "list of names"),
        ({"lanes": None}, "list of names"),
        ({"lanes": ["turbo"]}, "no lane 'turbo'"),
        ({"lanes": list(METHODS)}, "choose 1 to 6"),
        ({"max_new_tokens": 0}, "answer's length"),
        ({"max_new_tokens": MAX_NEW_TOKENS + 1}, "answer's length"),
        ({"max_new_tokens": 10**30}, "answer's length"),
        ({"max_new_tokens": 2.5}, "whole number"),
        ({"max_new_tokens": "160"}, "not a number"),
        ({"max_new_tokens": True}, "not a number"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": {}}, "temperature"),
        ({"top_p": 0}, "Top-p"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed"),
        ({"num_draft": "many"}, "a number, or auto"),
        ({"num_draft": -1}, "draft tokens"),
        ({"num_draft": "inf"}, "draft tokens"),
        ({"num_draft": 129}, "draft tokens"),
        ({"top": 0}, "passages"),
        ({"top": 13}, "passages"),
    ],
)
def test_anything_else_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_asking(**{"question": "Why?", "lanes": ["trie"], **changes})
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_link_sets_what_it_names_and_nothing_else() -> None:
    assert read_link({}) == {}
    assert read_link({"__theme": "dark", "autorun": "1"}) == {}
    link = {"q": "Why?", "lanes": "trie, bigram", "tokens": "40", "temperature": "0.5", "seed": "3", "draft": "auto"}
    assert read_link(link) == {
        "question": "Why?", "lanes": ["vanilla", "bigram", "trie"], "max_new_tokens": 40, "temperature": 0.5, "seed": 3,
        "num_draft": "auto",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"lanes": "ghost"}, "ghost"),
        ({"lanes": ""}, "lanes"),
        ({"tokens": "many"}, "tokens is 'many'"),
        ({"tokens": "1e9"}, "answer's length"),
        ({"seed": "nan"}, "seed"),
        ({"temperature": "-1"}, "temperature"),
        ({"q": " "}, "no question"),
        ({"q": "x" * 3000}, "question"),
        ({"draft": "${x}"}, "draft tokens"),
        ({"verifier": "wish"}, "verifier"),
        ({"passages": "99"}, "passages"),
    ],
)
def test_a_wrong_link_is_a_sentence(link: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_link(link)
