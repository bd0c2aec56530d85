"""The panel "Lanes and settings": components for settings and for lanes' options, and presets that fill them.

A lane is a drafting method with its options, which takes part in a race.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gradio as gr

from specrace.core.settings import MAX_PAGE_LANES, SETTINGS, Setting
from specrace.drafters import draft_model_lanes, find_method, head_lanes, native_methods
from specrace.drafters.base import Bounds, Method, Option
from specrace.engine.lane_name import LaneName
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui.page import lane_choices
from specrace.ui.page.lane_choices import empty_value, is_set
from specrace.ui.races import race_request
from specrace.ui.visitor_limits import VisitorLimits

# The names of the components in `Panel.common`, in its order.
COMMON = ("lanes", *race_request.OFFERED)
DEFAULTS: dict[str, Any] = {"lanes": list(DEFAULT_LANES)} | {
    name: "auto" if SETTINGS[name].default is None else SETTINGS[name].default for name in race_request.OFFERED
}


@dataclass(frozen=True)
class Preset:
    """Settings that one press applies. `common` (by names in COMMON) and lanes' `options` differ from the defaults."""

    name: str
    help: str
    common: dict[str, Any]
    options: dict[str, dict[str, Any]]


PRESETS = (
    Preset("Stage", "Five lanes that differ in kind, for showing how it works.", {}, {}),
    Preset(
        "Fast",
        "The lanes that copy, and a short answer.",
        {"lanes": ["vanilla", "prompt-lookup", "trie", "suffix"], "max_new_tokens": 80},
        {},
    ),
    Preset(
        "Paper",
        "The n-gram trie paper's settings, against lookahead.",
        # Draft tokens stay on auto: one number for all lanes would be too small for lookahead, whose tree has 119.
        {"lanes": ["vanilla", "lookahead", "trie"]},
        # A static trie holds the n-grams of the prompt only, not those of the output.
        {"trie": {"n": 13, "prefix": 3, "static": True}, "lookahead": {"n": 5, "window": 15, "guesses": 15}},
    ),
)


def opening_values(preset: Preset | None, max_tokens: int) -> dict[str, Any]:
    """The common settings, by name, on a page that opens with `preset`, or with the defaults if it is None."""
    # The values begin with those of COMMON; the lanes' options, which follow, are left out.
    return dict(zip(COMMON, preset_values(preset or Preset("", "", {}, {}), max_tokens), strict=False))


def recommended_preset(settings: Mapping[str, Any]) -> Preset:
    """The preset for the content of a settings file (`exports.specrace.read_settings`).

    The panel has no fields for the options of another engine's drafter, so they are in the lane's name.
    """
    options = dict(settings)
    name, num_draft = options.pop("method"), options.pop("num_draft")
    method = find_method(name)
    lane = str(LaneName.of(method, options)) if method.twin_of else name
    fields = {} if method.twin_of else {name: options}
    return Preset("Recommended", "", {"lanes": ["vanilla", lane], "num_draft": str(num_draft)}, fields)


@dataclass(frozen=True)
class Panel:
    """The panel's components: `common` in the order of COMMON, `options` by (lane, option).

    `reference`: what the servers are compared with. `health`: lines that say whether the servers answer.
    """

    common: list[gr.components.Component]
    model: gr.Dropdown
    dtype: gr.Dropdown
    servers: gr.CheckboxGroup
    reference: gr.Dropdown
    health: gr.HTML
    options: dict[tuple[str, str], gr.components.Component]

    @property
    def inputs(self) -> list[gr.components.Component]:
        """All components, in the order in which `PageEvents.start` receives their values after the files."""
        return [self.model, self.dtype, self.servers, self.reference, *self.common, *self.options.values()]


def build_panel(
    models: Sequence[str],
    dtypes: Sequence[str],
    limits: VisitorLimits | None = None,
    opening_preset: Preset | None = None,
    *,
    has_heads: bool = False,
    has_draft_model: bool = False,
    servers: Sequence[str] = (),
) -> Panel:
    """Build the panel, with choices of `models`, `dtypes` and `servers`, filled by `opening_preset` if there is one.

    Without heads, the lanes that draft with a trained head are grey; without a draft model, those that need one.
    """
    limits = limits or VisitorLimits()
    max_tokens = limits.race_tokens
    quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "queue": False}
    with gr.Column(elem_id="settings"):
        with gr.Row(elem_id="presets"):
            gr.HTML("<span>Presets</span>", elem_id="presets-label")
            buttons = [gr.Button(preset.name, size="sm", elem_id=f"preset-{preset.name.lower()}") for preset in PRESETS]
            helps = [f"<span>{preset.help}</span>" for preset in PRESETS]
            gr.HTML("".join(helps), elem_id="presets-help")
        lanes = _lanes_field(has_heads=has_heads, has_draft_model=has_draft_model)
        lane_choices.build_adder(lanes)
        server_field, reference, health = _servers_fields(servers)
        with gr.Row(elem_id="race-settings"):
            common = _common_fields(max_tokens)
            model, dtype = _model_fields(models, dtypes)
        with gr.Accordion("Options of the lanes", open=False, elem_id="lane-options"):
            options = _option_fields(lanes)
    panel = Panel([lanes, *common], model, dtype, server_field, reference, health, options)
    lanes.input(None, lanes, lanes, js=f"(names) => [specrace.limitLanes(names, {MAX_PAGE_LANES})]", **quiet)
    lanes.change(None, lanes, None, js="(names) => specrace.showLanes(names)", **quiet)
    filled = [*panel.common, *options.values()]
    if opening_preset is not None:
        for component, value in zip(filled, preset_values(opening_preset, max_tokens), strict=True):
            component.value = value
        lanes.choices = lane_choices.boxes(lanes.value)
    for button, preset in zip(buttons, PRESETS, strict=True):
        button.click(partial(preset_values, preset, max_tokens), None, filled, **quiet)
    return panel


def lane_style() -> str:
    """CSS that hides the options of lanes that are not ticked, and greys lanes that lack a head or a draft model."""
    hidden = '#settings:not([data-lanes~="{0}"]) #options-{0} {{ display: none; }}\n'
    # The text stays readable, because such a lane can be ticked all the same.
    grey = (
        '#lanes.{1} label:has(input[name="{0}"]:not(:checked)) '
        "{{ border-style: dashed; color: var(--dim); font-style: italic; }}\n"
    )
    lacking = [(lane, "no-heads") for lane in head_lanes()] + [(lane, "no-draft-model") for lane in draft_model_lanes()]
    return "".join([*map(hidden.format, native_methods()), *(grey.format(*pair) for pair in lacking)])


def preset_values(preset: Preset, max_tokens: int = 512) -> list[Any]:
    """The values of the common settings, then of every lane's options: the preset's or, where it has none, defaults.

    More new tokens than the server's limit, `max_tokens`, are cut down to it.
    """
    common = DEFAULTS | preset.common
    common["max_new_tokens"] = min(common["max_new_tokens"], max_tokens)
    values = [common[name] for name in COMMON]
    for lane, method in native_methods().items():
        options = preset.options.get(lane, {})
        for option in method.options:
            values.append(_field_value(options[option.name]) if option.name in options else empty_value(option))
    return values


def read_options(values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Read lanes' options from the components' values. Leaves out empty fields and checkboxes at their defaults."""
    options: dict[str, dict[str, Any]] = {}
    pairs = [(lane, option) for lane, method in native_methods().items() for option in method.options]
    for (lane, option), value in zip(pairs, values, strict=True):
        if is_set(option, value):
            options.setdefault(lane, {})[option.name] = value
    return options


def _lanes_field(*, has_heads: bool, has_draft_model: bool) -> gr.CheckboxGroup:
    """The boxes of the lanes. Those that lack a trained head or a draft model are grey; the field's `info` says why."""
    needs = [(has_heads, head_lanes(), "a trained head"), (has_draft_model, draft_model_lanes(), "a draft model")]
    missing = "".join(
        f" {_list_titles(lanes)} need {what}, which this server's model lacks." for has, lanes, what in needs if not has
    )
    return gr.CheckboxGroup(
        lane_choices.boxes(()),
        value=DEFAULTS["lanes"],
        label="Lanes",
        info=f"Choose up to six. Vanilla always runs: it is the baseline.{missing}",
        elem_id="lanes",
        elem_classes=[*([] if has_heads else ["no-heads"]), *([] if has_draft_model else ["no-draft-model"])],
    )


def _list_titles(lanes: Iterable[str]) -> str:
    """The titles of our own methods among `lanes` in words, as in "Medusa, EAGLE and Hybrid"."""
    *titles, last = (method.title for name, method in native_methods().items() if name in set(lanes))
    return f"{', '.join(titles)} and {last}"


def _servers_fields(names: Sequence[str]) -> tuple[gr.CheckboxGroup, gr.Dropdown, gr.HTML]:
    """The fields of the operator's servers: boxes, the choice of a reference, and lines about the servers' health.

    As many boxes are ticked as servers fit beside the default lanes. With one server there is no other server to
    compare it with, so the choice of a reference is hidden.
    """
    field = gr.CheckboxGroup(
        list(names),
        value=list(names[: MAX_PAGE_LANES - len(DEFAULT_LANES)]),
        label="Your server" if len(names) == 1 else "Your servers",
        info="Engines that this page's operator named. They are sent your question with its passages.",
        visible=bool(names),
        elem_id="servers",
    )
    reference = gr.Dropdown(
        [("Vanilla", ""), *((name, name) for name in names)],
        value="",
        label="Servers are compared with",
        info="Choose a server if the servers run another model than this page.",
        visible=len(names) > 1,
        elem_id="servers-reference",
    )
    return field, reference, gr.HTML("", visible=bool(names), elem_id="server-health")


def _common_fields(max_tokens: int) -> list[gr.components.Component]:
    """One component for each setting of a race."""
    settings = []
    for name in race_request.OFFERED:
        setting = SETTINGS[name]
        settings.append(replace(setting, shared_high=max_tokens) if name == "max_new_tokens" else setting)
    return [_setting_field(setting) for setting in settings]


def _setting_field(setting: Setting) -> gr.components.Component:
    """Radio buttons for choices, a text field if "auto" is allowed, else a number field."""
    if setting.choices:
        choices = [(choice.capitalize(), choice) for choice in setting.choices]
        return gr.Radio(choices, value=setting.default, label=setting.label, info=setting.help)
    low, high = setting.bounds(shared=True)
    # Only the seed has such a large bound, which nobody needs to know.
    info = setting.help if high > 1e6 else f"{setting.help} {low:g} to {high:g}."
    texts: dict[str, Any] = {"label": setting.label, "info": info}
    if setting.default is None:
        return gr.Textbox("auto", max_lines=1, **texts)
    # The field has no minimum and maximum: Gradio's refusal would not name the field; that of `Setting.check` does.
    return gr.Number(min(setting.default, high), step=setting.step, **texts)


def _model_fields(models: Sequence[str], dtypes: Sequence[str]) -> tuple[gr.Dropdown, gr.Dropdown]:
    model = gr.Dropdown(
        model_choices(models),
        value="",
        label="Model",
        info="The models that this server offers. The first race with one loads it.",
    )
    precisions = [("server default", ""), *((name, name) for name in dtypes)]
    info = "Same text as vanilla in float32 and int8; in 16 bits near ties may flip."
    return model, gr.Dropdown(precisions, value="", label="Dtype", info=info)


def model_choices(models: Sequence[str]) -> list[tuple[str, str]]:
    """The choices of the model field: the server's default model, then the models on offer."""
    return [("server default", ""), *((name, name) for name in models)]


def _option_fields(lanes: gr.CheckboxGroup) -> dict[tuple[str, str], gr.components.Component]:
    """One component for each option, grouped by lane. The page shows only the groups of ticked lanes."""
    components: dict[tuple[str, str], gr.components.Component] = {}
    for lane, method in native_methods().items():
        if not method.options:
            continue
        with gr.Column(elem_id=f"options-{lane}", elem_classes="lane-group"):
            gr.HTML(f"<h3>{method.title}</h3>", elem_classes="lane-title")
            with gr.Row():
                fields = {option.name: _option_field(method, option) for option in method.options}
            lane_choices.build_duplicator(method, lanes, list(fields.values()))
        components |= {(lane, name): field for name, field in fields.items()}
    return components


def _option_field(method: Method, option: Option) -> gr.components.Component:
    label = option.name.replace("_", " ").capitalize()
    if not isinstance(option.bounds, Bounds):
        return gr.Checkbox(bool(option.default), label=label, info=_sentence(option.bounds.help), min_width=200)
    low, high = option.bounds.low, option.bounds.high
    gpu_default = method.accelerator.get(option.name)
    on_gpu = f"; on a GPU {gpu_default}" if gpu_default is not None and gpu_default != option.default else ""
    # Not a gr.Number, which would show an empty field as 0.
    return gr.Textbox(
        label=label,
        placeholder=f"default: {option.default}",
        info=f"{_sentence(option.bounds.help)} {low} to {high}{on_gpu}.",
        max_lines=1,
        max_length=race_request.MAX_WORD,
        min_width=200,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _field_value(value: Any) -> Any:
    """The value that an option's field shows: a bool for a checkbox, else text."""
    return value if isinstance(value, bool) else str(value)
