"""The settings panel: every option of every lane has a field, and what the fields say is what is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gradio as gr
import pytest

from specrace.core.errors import InputError
from specrace.drafters import METHODS, find_method, native_methods
from specrace.drafters.base import Bounds
from specrace.ui import race_request, settings_panel
from specrace.ui.model_choices import ModelChoices
from specrace.ui.page import build_page
from specrace.ui.settings_panel import (
    COMMON,
    DEFAULTS,
    PRESETS,
    Panel,
    build_panel,
    lane_style,
    preset_values,
    read_options,
)
from specrace.ui.visitors import VisitorLimits, Visitors
from specrace.ui.worker import Worker
from specrace.workbench import Workbench

OPTIONS = [(lane, option) for lane, method in native_methods().items() for option in method.options]


@pytest.fixture
def panel() -> Panel:
    with gr.Blocks():
        return build_panel(["tiny"], ["float32"])


def test_every_option_of_the_registry_has_a_field_that_tells_its_bounds(panel: Panel) -> None:
    assert list(panel.options) == [(lane, option.name) for lane, option in OPTIONS]
    for (_, option), field in zip(OPTIONS, panel.options.values(), strict=True):
        info = cast(str, cast(Any, field).info)
        assert option.bounds.help.lower() in info.lower()
        if isinstance(option.bounds, Bounds):
            assert f"{option.bounds.low} to {option.bounds.high}" in info
    assert all(cast(Any, each).info for each in panel.common)


def test_fields_that_are_left_alone_ask_for_nothing() -> None:
    empty = [("" if isinstance(option.bounds, Bounds) else option.default) for _, option in OPTIONS]
    assert read_options(empty) == {}
    assert read_options([None if value == "" else value for value in empty]) == {}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_can_be_raced_as_it_is(preset: Any) -> None:
    values = preset_values(preset)
    common = dict(zip(COMMON, values, strict=False))
    assert {name: common[name] for name in preset.common} == preset.common
    assert all(common[name] == DEFAULTS[name] for name in COMMON if name not in preset.common)
    options = read_options(values[len(COMMON) :])
    asked = race_request.parse_request("Why?", common.pop("lanes"), common, options)
    checked = {lane: find_method(lane).check(own) for lane, own in preset.options.items()}
    assert {lane: find_method(lane).check(own) for lane, own in asked.spec.options.items()} == checked


def test_the_panel_opens_with_a_settings_file() -> None:
    first = settings_panel.recommended({"method": "trie", "num_draft": 6, "n": 5, "prefix": 2, "static": True})
    with gr.Blocks():
        panel = build_panel(["tiny"], ["float32"], first=first)
    values = dict(zip(COMMON, [each.value for each in panel.common], strict=True))
    assert (values["lanes"], values["num_draft"]) == (["vanilla", "trie"], "6")
    options = read_options([each.value for each in panel.options.values()])
    assert METHODS["trie"].check(options["trie"]) == {"n": 5, "prefix": 2, "static": True}


def usual(first: settings_panel.Preset | None = None, limits: VisitorLimits | None = None) -> Any:
    """What the page leaves out of its address."""
    page = build_page(Worker(lambda _: cast(Workbench, None)), [], visitors=Visitors(limits), first=first)
    (keep,) = {str(each.js) for each in page.fns.values() if "keepAddress" in str(each.js)}
    return json.loads(keep[keep.index("{") : keep.rindex("}") + 1])


def test_the_address_leaves_out_what_the_page_opens_with() -> None:
    """With a settings file that is not the default, which a reload would not bring back."""
    plain = usual()
    assert plain == {key: DEFAULTS.get(name, "") for key, name in race_request.LINK.items()}
    first = settings_panel.recommended({"method": "trie", "num_draft": 6})
    assert usual(first) == plain | {"draft": "6", "lanes": ["vanilla", "trie"]}
    assert usual(limits=VisitorLimits(race_tokens=100)) == plain | {"tokens": 100}


def test_options_of_lanes_that_do_not_race_are_left_out() -> None:
    asked = race_request.parse_request("Why?", ["trie"], {}, options={"trie": {"n": 5.0}, "suffix": {"depth": "9"}})
    assert asked.spec.options == {"trie": {"n": 5}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "not lanes with options"),
        ("trie", "not lanes with options"),
        ({"trie": [1]}, "not lanes with options"),
        ({"turbo": {}}, "no lane 'turbo'"),
        ({"trie": {"n": None}}, "not a number"),
        ({"trie": {"n": "9" * 41}}, "not a number"),
        ({"trie": {"n": 10**300}}, "not a number"),
        ({"trie": {"n": float("nan")}}, "trie.n"),
        ({"trie": {"n": 2.5}}, "trie.n"),
        ({"trie": {"n": "<b>"}}, "trie.n"),
        ({"trie": {"static": 7}}, "true or false"),
        ({"trie": {"x" * 500: 1}}, "no option"),
        ({"lookahead": {"n": 16, "window": 64, "guesses": 64}}, "stay below 512"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(options: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        race_request.parse_request("Why?", ["trie", "lookahead"], {}, options=options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800


@pytest.mark.parametrize("given", [{"model": 3}, {"model": ["tiny"]}, {"dtype": {}}])
def test_names_are_words(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not a name"):
        race_request.parse_request("Why?", ["trie"], {}, **given)


class Bench:
    """Stands where a workbench stands, of the model /m/big: what it was asked to load. `runs_in` is the target's."""

    def __init__(self, loaded: list[Any], dtype: str | None = None, runs_in: str = "float32") -> None:
        self.loaded, self.dtype, self.runs_in = loaded, dtype, runs_in
        self.model, self.num_passages = "/m/big", 2

    @property
    def target(self) -> Any:
        return self

    def describe(self) -> dict[str, str]:
        return {"model": "big", "dtype": self.runs_in, "device": "cpu"}

    def has_model(self, model: Any) -> bool:
        return str(model) == self.model

    def with_model(self, model: Any, dtype: str | None) -> Bench:
        self.loaded.append((model, dtype))
        return Bench(self.loaded, self.dtype, dtype or self.runs_in)

    def with_target(self, target: Bench) -> VisitorsBench:
        return VisitorsBench(self.loaded, self.dtype, target.runs_in)


class VisitorsBench(Bench):
    """The same on a visitor's documents."""


def choices() -> ModelChoices:
    return ModelChoices({"big": "/m/big", "small": Path("/m/small")}, ["float32", "bfloat16"])


def test_only_offered_models_are_loaded_and_each_choice_once() -> None:
    loaded: list[Any] = []
    models, own = choices(), cast(Workbench, Bench(loaded))
    assert models.choose(own, own, "", "") is own and models.choose(own, own, "", "float32") is own and loaded == []
    first = models.choose(own, own, "small", "")
    assert models.choose(own, own, "small", "") is first and loaded == [(Path("/m/small"), None)]
    assert models.choose(own, own, "", "bfloat16").target.describe()["dtype"] == "bfloat16"
    assert loaded[1:] == [("/m/big", "bfloat16")]
    for model, dtype in (("other", ""), ("/etc", ""), ("", "float64")):
        with pytest.raises(InputError, match="here; choose from"):
            models.choose(own, own, model, dtype)
    with pytest.raises(InputError, match="choose from none"):
        ModelChoices().check("tiny", "")


def test_the_servers_own_model_is_not_loaded_again_by_its_name() -> None:
    loaded: list[Any] = []
    models, own = choices(), cast(Workbench, Bench(loaded))
    assert models.choose(own, own, "big", "") is own and models.choose(own, own, "big", "float32") is own
    assert loaded == [] and models.describe_ready(own, "big", "") == models.describe_ready(own)
    assert models.choose(own, own, "big", "bfloat16") is models.choose(own, own, "", "bfloat16")
    assert loaded == [("/m/big", "bfloat16")]


def test_a_chosen_model_is_kept_without_the_documents_of_whoever_chose_it() -> None:
    loaded: list[Any] = []
    models, shared, own = choices(), cast(Workbench, Bench(loaded)), cast(Workbench, VisitorsBench(loaded))
    assert isinstance(models.choose(shared, own, "small", ""), VisitorsBench)
    for_all = models.choose(shared, shared, "small", "")
    assert not isinstance(for_all, VisitorsBench) and models.choose(shared, shared, "small", "") is for_all
    assert len(loaded) == 1 and models.choose(shared, own, "", "") is own


def test_the_servers_dtype_is_that_of_a_chosen_model() -> None:
    loaded: list[Any] = []
    models, own = choices(), cast(Workbench, Bench(loaded, dtype="bfloat16", runs_in="bfloat16"))
    assert models.describe_ready(own, "small").startswith("Ready: small, bfloat16, cpu, 2 passages")
    assert models.choose(own, own, "small", "") is models.choose(own, own, "small", "bfloat16")
    assert loaded == [(Path("/m/small"), "bfloat16")]


def test_an_engines_drafter_is_not_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = replace(find_method("trie"), name="twin", title="Twin", twin_of="Engine")
    monkeypatch.setitem(METHODS, "twin", twin)
    assert find_method("twin") is twin and "twin" not in native_methods()
    with gr.Blocks():
        panel = build_panel(["tiny"], ["float32"])
    lanes = cast(gr.CheckboxGroup, panel.common[0])
    assert [value for _, value in lanes.choices] == list(native_methods())
    assert not [option for lane, option in panel.options if lane == "twin"] and "twin" not in lane_style()
    with pytest.raises(InputError, match="The page has no lane 'twin'; race it on the command line"):
        race_request.read_link({"lanes": "trie,twin"})
