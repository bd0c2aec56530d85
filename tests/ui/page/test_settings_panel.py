"""The settings panel: every lane option has a field, and a race gets the fields' values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gradio as gr
import pytest

from specrace.core.errors import InputError
from specrace.drafters import METHODS, draft_model_lanes, find_method, head_lanes, native_methods
from specrace.drafters.base import Bounds
from specrace.model.weights.source import choose_model
from specrace.ui.page import lane_choices, settings_panel
from specrace.ui.page.page import build_page
from specrace.ui.page.settings_panel import (
    COMMON,
    DEFAULTS,
    PRESETS,
    Panel,
    build_panel,
    lane_style,
    preset_values,
    read_options,
)
from specrace.ui.races import race_request
from specrace.ui.races.backend import Backend
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.races.worker import Worker
from specrace.ui.server.visitors import Visitors
from specrace.ui.visitor_limits import VisitorLimits
from specrace.workbench import Workbench

# Every option of our own methods, in the order of its field on the panel.
OPTIONS = [(lane, option) for lane, method in native_methods().items() for option in method.options]


@pytest.fixture
def panel() -> Panel:
    with gr.Blocks():
        return build_panel(["tiny"], ["float32"])


def test_every_lane_option_has_a_field_that_states_its_bounds(panel: Panel) -> None:
    assert list(panel.options) == [(lane, option.name) for lane, option in OPTIONS]
    for (_, option), field in zip(OPTIONS, panel.options.values(), strict=True):
        info = cast(str, cast(Any, field).info)
        assert option.bounds.help.lower() in info.lower()
        if isinstance(option.bounds, Bounds):
            assert f"{option.bounds.low} to {option.bounds.high}" in info
    assert all(cast(Any, field).info for field in panel.common)


def test_untouched_fields_set_no_option() -> None:
    empty = [("" if isinstance(option.bounds, Bounds) else option.default) for _, option in OPTIONS]
    assert read_options(empty) == {}
    assert read_options([None if value == "" else value for value in empty]) == {}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_preset_is_a_valid_request(preset: Any) -> None:
    values = preset_values(preset)
    common = dict(zip(COMMON, values, strict=False))
    assert {name: common[name] for name in preset.common} == preset.common
    assert all(common[name] == DEFAULTS[name] for name in COMMON if name not in preset.common)
    options = read_options(values[len(COMMON) :])
    request = race_request.parse_request("Why?", common.pop("lanes"), common, options)
    checked = {lane: find_method(lane).check(options) for lane, options in preset.options.items()}
    assert {lane: find_method(lane).check(options) for lane, options in request.race.spec.options.items()} == checked


def test_the_panel_opens_with_a_settings_file() -> None:
    preset = settings_panel.recommended_preset({"method": "trie", "num_draft": 6, "n": 5, "prefix": 2, "static": True})
    with gr.Blocks():
        panel = build_panel(["tiny"], ["float32"], opening_preset=preset)
    values = dict(zip(COMMON, [field.value for field in panel.common], strict=True))
    assert (values["lanes"], values["num_draft"]) == (["vanilla", "trie"], "6")
    options = read_options([field.value for field in panel.options.values()])
    assert METHODS["trie"].check(options["trie"]) == {"n": 5, "prefix": 2, "static": True}


def omitted_values(preset: settings_panel.Preset | None = None, limits: VisitorLimits | None = None) -> Any:
    """Return the values that the page omits from its address."""
    backend = Backend.of(Worker(lambda _: cast(Workbench, None)), visitors=Visitors(limits))
    page = build_page(backend, [], opening_preset=preset)
    (script,) = {str(function.js) for function in page.fns.values() if "updateAddress" in str(function.js)}
    return json.loads(script[script.index("{") : script.rindex("}") + 1])


def test_the_address_omits_the_pages_defaults() -> None:
    """A page that opens with a settings file also omits the values of this file."""
    defaults = omitted_values()
    assert defaults == {key: DEFAULTS.get(name, "") for key, name in race_request.LINK.items()}
    preset = settings_panel.recommended_preset({"method": "trie", "num_draft": 6})
    assert omitted_values(preset) == defaults | {"draft": "6", "lanes": ["vanilla", "trie"]}
    assert omitted_values(limits=VisitorLimits(race_tokens=100)) == defaults | {"tokens": 100}


def test_options_of_unchosen_lanes_are_dropped() -> None:
    request = race_request.parse_request("Why?", ["trie"], {}, options={"trie": {"n": 5.0}, "suffix": {"depth": "9"}})
    assert request.race.spec.options == {"trie": {"n": 5}}


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
def test_invalid_options_get_one_sentence(options: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        race_request.parse_request("Why?", ["trie", "lookahead"], {}, options=options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 800


@pytest.mark.parametrize("names", [{"model": 3}, {"model": ["tiny"]}, {"dtype": {}}])
def test_model_and_dtype_names_must_be_strings(names: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not a name"):
        race_request.parse_request("Why?", ["trie"], {}, **names)


class FakeWorkbench:
    """A workbench whose model is /m/big. `loaded` lists what it loads; `runs_in` is the dtype of its target."""

    def __init__(self, loaded_models: list[Any], dtype: str | None = None, runs_in: str = "float32") -> None:
        self.loaded, self.runs_in, self.num_passages = loaded_models, runs_in, 2
        self.choice = choose_model("/m/big", dtype=dtype)

    @property
    def target(self) -> Any:
        return self

    def describe(self) -> dict[str, str]:
        return {"model": "big", "dtype": self.runs_in, "device": "cpu"}

    def has_model(self, model: Any) -> bool:
        return str(model) == self.choice.source.location

    def with_model(self, model: Any, dtype: str | None) -> FakeWorkbench:
        self.loaded.append((model, dtype))
        return FakeWorkbench(self.loaded, self.choice.dtype, dtype or self.runs_in)

    def with_target(self, target: FakeWorkbench) -> VisitorsWorkbench:
        return VisitorsWorkbench(self.loaded, self.choice.dtype, target.runs_in)


class VisitorsWorkbench(FakeWorkbench):
    """A workbench on a visitor's documents."""


def choices() -> ModelChoices:
    """The models and dtypes that a server offers."""
    return ModelChoices({"big": "/m/big", "small": Path("/m/small")}, ["float32", "bfloat16"])


def test_only_offered_models_are_loaded_and_each_only_once() -> None:
    loaded_models: list[Any] = []
    models, workbench = choices(), cast(Workbench, FakeWorkbench(loaded_models))
    # The arguments: the server's workbench, the visitor's, the model and the dtype; "" is the server's own.
    assert (
        models.choose(workbench, workbench, "", "") is workbench
        and models.choose(workbench, workbench, "", "float32") is workbench
        and loaded_models == []
    )
    first = models.choose(workbench, workbench, "small", "")
    assert models.choose(workbench, workbench, "small", "") is first and loaded_models == [(Path("/m/small"), None)]
    assert models.choose(workbench, workbench, "", "bfloat16").target.describe()["dtype"] == "bfloat16"
    assert loaded_models[1:] == [(workbench.choice.source, "bfloat16")]
    for model, dtype in (("other", ""), ("/etc", ""), ("", "float64")):
        with pytest.raises(InputError, match="here; choose from"):
            models.choose(workbench, workbench, model, dtype)
    with pytest.raises(InputError, match="choose from none"):
        ModelChoices().check("tiny", "")


def test_the_servers_own_model_is_not_loaded_again_by_its_name() -> None:
    loaded_models: list[Any] = []
    models, workbench = choices(), cast(Workbench, FakeWorkbench(loaded_models))
    assert (
        models.choose(workbench, workbench, "big", "") is workbench
        and models.choose(workbench, workbench, "big", "float32") is workbench
    )
    assert loaded_models == [] and models.describe_ready(workbench, "big", "") == models.describe_ready(workbench)
    assert models.choose(workbench, workbench, "big", "bfloat16") is models.choose(workbench, workbench, "", "bfloat16")
    assert loaded_models == [(workbench.choice.source, "bfloat16")]


def test_a_chosen_model_is_cached_without_the_visitors_documents() -> None:
    loaded_models: list[Any] = []
    models, shared, visitors_workbench = (
        choices(),
        cast(Workbench, FakeWorkbench(loaded_models)),
        cast(Workbench, VisitorsWorkbench(loaded_models)),
    )
    assert isinstance(models.choose(shared, visitors_workbench, "small", ""), VisitorsWorkbench)
    shared_workbench = models.choose(shared, shared, "small", "")
    assert (
        not isinstance(shared_workbench, VisitorsWorkbench)
        and models.choose(shared, shared, "small", "") is shared_workbench
    )
    assert len(loaded_models) == 1 and models.choose(shared, visitors_workbench, "", "") is visitors_workbench


def test_a_chosen_model_defaults_to_the_servers_dtype() -> None:
    loaded_models: list[Any] = []
    models, workbench = choices(), cast(Workbench, FakeWorkbench(loaded_models, dtype="bfloat16", runs_in="bfloat16"))
    assert models.describe_ready(workbench, "small").startswith("Ready: small, bfloat16, cpu, 2 passages")
    assert models.choose(workbench, workbench, "small", "") is models.choose(workbench, workbench, "small", "bfloat16")
    assert loaded_models == [(Path("/m/small"), "bfloat16")]


@pytest.mark.parametrize("has_heads", [False, True])
@pytest.mark.parametrize("has_draft_model", [False, True])
def test_lanes_that_lack_a_head_or_a_draft_model_are_grey_and_say_why(has_heads: bool, has_draft_model: bool) -> None:
    with gr.Blocks():
        panel = build_panel(["tiny"], ["float32"], has_heads=has_heads, has_draft_model=has_draft_model)
    lanes = cast(gr.CheckboxGroup, panel.common[0])
    assert ("no-heads" in lanes.elem_classes) != has_heads
    assert ("EAGLE, Block, SPACE and Hybrid need a trained head, which this server" in str(lanes.info)) != has_heads
    assert ("no-draft-model" in lanes.elem_classes) != has_draft_model
    assert ("Draft model and SpecInfer need a draft model, which this server" in str(lanes.info)) != has_draft_model
    for css_class, grey_lanes in (("no-heads", head_lanes()), ("no-draft-model", draft_model_lanes())):
        for lane in grey_lanes:
            assert f'#lanes.{css_class} label:has(input[name="{lane}"]' in lane_style()


def test_other_engines_drafters_have_no_boxes_until_they_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    # A twin reproduces another engine's drafter.
    twin = replace(find_method("trie"), name="twin", title="Twin", twin_of="Engine")
    monkeypatch.setitem(METHODS, "twin", twin)
    assert find_method("twin") is twin and "twin" not in native_methods()
    with gr.Blocks():
        panel = build_panel(["tiny"], ["float32"])
    lanes = cast(gr.CheckboxGroup, panel.common[0])
    assert [value for _, value in lanes.choices] == list(native_methods())
    assert not [option for lane, option in panel.options if lane == "twin"] and "twin" not in lane_style()
    assert race_request.read_link({"lanes": "trie,twin:n=3"})[0]["lanes"] == ["vanilla", "trie", "twin:n=3"]
    update, text = lane_choices.add_lane(["vanilla", "trie"], "twin", "n=3, prefix = 2")
    assert (update["value"], text) == (["vanilla", "trie", "twin:n=3:prefix=2"], "")
    assert update["choices"][-1] == ("Twin (n=3, prefix=2)", "twin:n=3:prefix=2")
    preset = settings_panel.recommended_preset({"method": "twin", "num_draft": 6, "n": 5})
    with gr.Blocks():
        lanes = cast(gr.CheckboxGroup, build_panel(["tiny"], ["float32"], opening_preset=preset).common[0])
    assert lanes.value == ["vanilla", "twin:n=5"] and ("Twin (n=5)", "twin:n=5") in lanes.choices


def test_a_lane_is_duplicated_with_the_options_in_its_fields() -> None:
    trie = find_method("trie")
    update, *fields = lane_choices.duplicate_lane(trie, ["vanilla", "trie", "fusion"], "3", "", True)
    assert update["value"] == ["vanilla", "trie", "trie:n=3:static=true", "fusion"], "in the registry's order"
    assert fields == ["", "", False], "the fields are emptied, so that the first lane keeps its defaults"
    update, *_ = lane_choices.duplicate_lane(trie, update["value"], "5", None, False)
    assert update["value"].count("trie:n=5") == 1


@pytest.mark.parametrize(
    ("lanes", "values", "words"),
    [
        (["vanilla", "trie"], ("", "", False), "The lane trie is given twice"),
        (["vanilla", "trie:n=3"], ("03", "", False), "The lane trie:n=3 is given twice"),
        (["vanilla", "trie"], ("<b>", "", False), "trie.n is '&lt;b&gt;'"),
        ([f"trie:n={n}" for n in range(2, 8)], ("9", "", False), "7 lanes were chosen; choose 1 to 6"),
    ],
)
def test_a_lane_that_cannot_be_added_gets_a_sentence(
    lanes: list[str], values: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(gr, "Warning", warnings.append)
    updates = lane_choices.duplicate_lane(find_method("trie"), lanes, *values)
    # The boxes and the fields of the trie's three options stay as they are.
    assert updates == [gr.skip()] * 4 and words in "".join(warnings)
    added = ", ".join(f"{name}={value}" for name, value in zip(("n", "prefix"), values, strict=False) if value)
    assert lane_choices.add_lane(lanes, "trie", added) == (gr.skip(), gr.skip())
    assert len(warnings) == 2 and words in warnings[1]
