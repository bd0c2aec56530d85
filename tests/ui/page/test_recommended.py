"""*Race these settings*: recommended settings fill the panel's fields."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
import pytest

from specrace.core.errors import InputError
from specrace.ui.page.recommended import choose_recommended
from specrace.ui.page.settings_panel import COMMON, build_panel


def choose(method: str, num_draft: Any = 7, **options: Any) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    """The fields that change: name -> value of common fields, and (lane, option) -> value of options."""
    with gr.Blocks():
        panel = build_panel([], [])
    values = choose_recommended(json.dumps({"method": method, "num_draft": num_draft, "options": options}))
    unchanged = gr.skip()
    pairs = zip([*COMMON, *panel.options], values, strict=True)
    changed = {name: value for name, value in pairs if value != unchanged}
    return (
        {name: changed.pop(name) for name in COMMON if name in changed},
        changed,  # type: ignore[return-value]
    )


def test_a_lane_s_options_are_set_and_other_fields_stay() -> None:
    common, options = choose("trie", n=3, static=True)
    assert common["lanes"]["value"] == ["vanilla", "trie"]
    assert common["num_draft"] == "7" and set(common) == {"lanes", "num_draft"}
    assert {lane for lane, _ in options} == {"trie"}
    # The lane's other option, `prefix`, is set back to its default, for which the field is empty.
    assert options["trie", "n"] == "3" and options["trie", "static"] is True and options["trie", "prefix"] == ""


def test_another_engine_s_drafter_has_its_options_in_its_name() -> None:
    common, options = choose("vllm-ngram")
    assert common["lanes"]["value"][1].startswith("vllm-ngram") and options == {}


@pytest.mark.parametrize("text", ["", "[]", '{"method": "trie"}', '{"method": 1, "options": 2, "num_draft": 3}', None])
def test_anything_else_is_refused_in_a_sentence(text: Any) -> None:
    with pytest.raises(InputError, match=r"\."):
        choose_recommended(text)


def test_values_out_of_bounds_are_refused() -> None:
    with pytest.raises(InputError, match=r"num_draft|Draft tokens"):
        choose("trie", 100_000)
    with pytest.raises(InputError, match="n is"):
        choose("trie", n=1000)
