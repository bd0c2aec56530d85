"""A visitor's request and a link: which values are accepted, and how invalid ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.drafters import METHODS
from specrace.ui.races.race_request import parse_request, read_link


def test_the_pages_default_values_are_accepted() -> None:
    request = parse_request("Why?", ["trie", "vanilla"], {"max_new_tokens": 160, "num_draft": "auto", "passages": 4})
    assert request.race.spec.lanes == ("vanilla", "trie")
    assert (request.race.spec.num_draft, request.race.spec.max_new_tokens, request.race.passages) == (None, 160, 4)


def test_lanes_are_in_registry_order_and_include_vanilla() -> None:
    names = [name for name in METHODS if name != "vanilla"][:5]
    assert parse_request("Why?", list(reversed(names)), {}).race.spec.lanes == ("vanilla", *names)


def test_a_method_may_race_twice_and_a_link_names_its_options() -> None:
    request = parse_request("Why?", ["trie:n=5", "fusion", "trie"], {}, {"trie": {"prefix": 2}})
    assert request.race.spec.lanes == ("vanilla", "trie:n=5", "trie", "fusion")
    named = request.with_options_in_names().race
    assert named.spec.lanes == ("vanilla", "trie:n=5:prefix=2", "trie:prefix=2", "fusion")
    assert (named.question, named.spec.options) == ("Why?", {})
    link = ",".join(named.spec.lanes)
    assert read_link({"lanes": link})[0]["lanes"] == list(named.spec.lanes)


def test_thinking_is_off_unless_the_visitor_switches_it_on() -> None:
    assert [parse_request("Why?", ["trie"], {"thinking": value}).race.thinking for value in ("off", "on")] == [
        "off",
        "on",
    ]
    assert parse_request("Why?", ["trie"], {}).race.thinking == "off"
    assert read_link({"thinking": "on"}) == ({"thinking": "on"}, "")


@pytest.mark.parametrize(("value", "expected"), [("8", 8), (8.0, 8), (0, 0), ("AUTO", None), ("", None), (None, None)])
def test_draft_tokens_are_a_number_or_auto(value: Any, expected: int | None) -> None:
    assert parse_request("Why?", ["trie"], {"num_draft": value}).race.spec.num_draft == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"question": "  "}, "Type a question first"),
        ({"question": None}, "Type a question first"),
        ({"question": ["x"]}, "The question is not text"),
        ({"question": "x" * 2001}, "2001 characters"),
        ({"lanes": []}, "0 lanes"),
        ({"lanes": "trie"}, "list of names"),
        ({"lanes": [1]}, "list of names"),
        ({"lanes": None}, "list of names"),
        ({"lanes": ["turbo"]}, "no lane 'turbo'"),
        ({"lanes": list(METHODS)}, "choose 1 to 6"),
        ({"lanes": ["trie", "trie"]}, "The lane trie is given twice"),
        ({"lanes": ["trie:n=1"]}, "trie.n is '1'"),
        ({"lanes": ["trie:n"]}, "not of the form"),
        ({"max_new_tokens": 0}, "New tokens"),
        ({"max_new_tokens": 513}, "1 to 512"),
        ({"max_new_tokens": 10**30}, "New tokens"),
        ({"max_new_tokens": 2.5}, "whole number"),
        ({"max_new_tokens": "1k"}, "whole number"),
        ({"max_new_tokens": 10**5000}, "New tokens: this number"),
        ({"max_new_tokens": "9" * 5000}, "New tokens"),
        ({"max_new_tokens": True}, "whole number"),
        ({"temperature": float("nan")}, "Temperature"),
        ({"temperature": -1}, "Temperature"),
        ({"temperature": {}}, "Temperature"),
        ({"top_p": 0}, "Top-p"),
        ({"seed": -1}, "Seed"),
        ({"seed": None}, "Seed: None"),
        ({"num_draft": "many"}, "or auto"),
        ({"thinking": True}, "Thinking: True cannot be used; give off or on"),
        ({"num_draft": -1}, "Draft tokens"),
        ({"num_draft": "inf"}, "Draft tokens"),
        ({"num_draft": 129}, "Draft tokens"),
        ({"passages": -1}, "Passages"),
        ({"passages": 13}, "Passages"),
    ],
)
def test_invalid_values_get_one_sentence(changes: dict[str, Any], words: str) -> None:
    settings = {"question": "Why?", "lanes": ["trie"], **changes}
    question, lanes = settings.pop("question"), settings.pop("lanes")
    with pytest.raises(InputError, match=words) as caught:
        parse_request(question, lanes, settings)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_link_sets_only_what_it_names() -> None:
    assert read_link({}) == read_link({"__theme": "dark", "autorun": "1"}) == ({}, "")
    link = {"q": "Why?", "lanes": "trie, bigram", "tokens": "40", "temperature": "0.5", "seed": "3", "draft": "auto"}
    values, problem = read_link(link)
    assert values == {
        "question": "Why?", "lanes": ["vanilla", "bigram", "trie"], "max_new_tokens": 40, "temperature": 0.5, "seed": 3,
        "num_draft": "auto",
    }  # fmt: skip
    assert problem == ""


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"lanes": "ghost"}, "ghost"),
        ({"lanes": ""}, "lanes"),
        ({"tokens": "many"}, "New tokens: 'many'"),
        ({"tokens": "1e9"}, "New tokens"),
        ({"seed": "nan"}, "Seed"),
        ({"temperature": "-1"}, "Temperature"),
        ({"q": " "}, "Type a question first"),
        ({"q": "x" * 3000}, "question"),
        ({"draft": "${x}"}, "Draft tokens"),
        ({"verifier": "wish"}, "Verifier"),
        ({"passages": "99"}, "Passages"),
    ],
)
def test_an_invalid_link_gets_one_sentence_and_keeps_the_rest(link: dict[str, str], words: str) -> None:
    valid = {"q": "Why?", "seed": "7", "tokens": "40", "lanes": "trie"}
    values, problem = read_link(valid | link)
    assert words in problem and problem.endswith(".") and "\n" not in problem
    assert values == read_link({key: value for key, value in valid.items() if key not in link})[0]
