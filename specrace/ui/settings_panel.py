"""The panel behind "Lanes and settings": its components, one a lane's option too, and the presets that fill it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from specrace.core.settings import SETTINGS, Setting
from specrace.drafters import native_methods
from specrace.drafters.base import Bounds, Method, Option
from specrace.engine.spec import DEFAULT_LANES
from specrace.ui import race_request, uploads
from specrace.ui.visitors import VisitorLimits

# The values of `Panel.common` that a preset sets, in that order; options that it does not name are emptied.
COMMON = ("lanes", *race_request.OFFERED)
DEFAULTS: dict[str, Any] = {"lanes": list(DEFAULT_LANES)} | {
    name: "auto" if SETTINGS[name].default is None else SETTINGS[name].default for name in race_request.OFFERED
}


@dataclass(frozen=True)
class Preset:
    """Settings by one press: what differs from the defaults, in COMMON's names, and lanes' options."""

    name: str
    help: str
    common: dict[str, Any]
    options: dict[str, dict[str, Any]]


PRESETS = (
    Preset("Stage", "Four lanes that differ in kind, for showing how it works.", {}, {}),
    Preset(
        "Fast",
        "The lanes that copy, and a short answer.",
        {"lanes": ["vanilla", "prompt-lookup", "trie", "suffix"], "max_new_tokens": 80},
        {},
    ),
    Preset(
        "Paper",
        "Settings from the n-gram trie paper: a static trie of depth 13, prefix 3, against lookahead with 5, 15, 15.",
        # Draft tokens stay on auto: one number for all lanes would leave lookahead no room for its window of 119.
        {"lanes": ["vanilla", "lookahead", "trie"]},
        {"trie": {"n": 13, "prefix": 3, "static": True}, "lookahead": {"n": 5, "window": 15, "guesses": 15}},
    ),
)


def opening(first: Preset | None, longest: int) -> dict[str, Any]:
    """What the common settings are when the page opens with the preset `first`, if any; by name."""
    return dict(zip(COMMON, fill(first or Preset("", "", {}, {}), longest), strict=False))


def recommended(found: Mapping[str, Any]) -> Preset:
    """The preset of a settings file (`exports.specrace.read_settings`)."""
    options = dict(found)
    name, number = options.pop("method"), options.pop("num_draft")
    return Preset("Recommended", "", {"lanes": ["vanilla", name], "num_draft": str(number)}, {name: options})


@dataclass(frozen=True)
class Panel:
    """The panel's components. `common` in the order of COMMON; `options` by (lane, option)."""

    common: list[gr.components.Component]
    files: gr.File
    model: gr.Dropdown
    dtype: gr.Dropdown
    options: dict[tuple[str, str], gr.components.Component]

    @property
    def inputs(self) -> list[gr.components.Component]:
        """All, as the race's handler takes them."""
        return [self.files, self.model, self.dtype, *self.common, *self.options.values()]


def build_panel(
    models: Sequence[str], dtypes: Sequence[str], limits: VisitorLimits | None = None, first: Preset | None = None
) -> Panel:
    """The components, with their bounds and a line on each; the choices of model and dtype are the server's.

    The panel is filled by the preset `first`, if any.
    """
    limits = limits or VisitorLimits()
    longest = limits.race_tokens
    quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "queue": False}
    with gr.Column(elem_id="settings"):
        with gr.Row(elem_id="presets"):
            gr.HTML("<span>Presets</span>", elem_id="presets-label")
            presets = [gr.Button(each.name, size="sm", elem_id=f"preset-{each.name.lower()}") for each in PRESETS]
            gr.HTML("".join(f"<span><b>{each.name}</b> {each.help}</span>" for each in PRESETS), elem_id="presets-help")
        lanes = _lanes()
        with gr.Row():
            with gr.Column(scale=2):
                common = _common(longest)
                with gr.Row():
                    model, dtype = _model(models, dtypes)
            files = _files(limits.uploads)
        with gr.Accordion("Options of the lanes", open=False, elem_id="lane-options"):
            options = _options()
    panel = Panel([lanes, *common], files, model, dtype, options)
    lanes.input(None, lanes, lanes, js=f"(names) => [specrace.limitLanes(names, {race_request.MAX_LANES})]", **quiet)
    lanes.change(None, lanes, None, js="(names) => specrace.showLanes(names)", **quiet)
    if first is not None:
        for component, value in zip([*panel.common, *options.values()], fill(first, longest), strict=True):
            component.value = value
    for button, preset in zip(presets, PRESETS, strict=True):
        button.click(lambda preset=preset: fill(preset, longest), None, [*panel.common, *options.values()], **quiet)
    return panel


def lane_style() -> str:
    """CSS that hides the options of lanes that are not ticked."""
    rule = '#settings:not([data-lanes~="{0}"]) #options-{0} {{ display: none; }}\n'
    return "".join(rule.format(lane) for lane in native_methods())


def fill(preset: Preset, longest: int = 512) -> list[Any]:
    """The values that a preset gives to the common settings and to every lane's options."""
    common = DEFAULTS | preset.common
    common["max_new_tokens"] = min(common["max_new_tokens"], longest)
    values = [common[name] for name in COMMON]
    for lane, method in native_methods().items():
        own = preset.options.get(lane, {})
        values += [_shown(own[option.name]) if option.name in own else _empty(option) for option in method.options]
    return values


def read_options(values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Lanes' options from the components' values: what was left empty, or as it is anyway, is left out."""
    given: dict[str, dict[str, Any]] = {}
    pairs = [(lane, option) for lane, method in native_methods().items() for option in method.options]
    for (lane, option), value in zip(pairs, values, strict=True):
        if value is not None and str(value).strip() and not (isinstance(value, bool) and value == option.default):
            given.setdefault(lane, {})[option.name] = value
    return given


def _lanes() -> gr.CheckboxGroup:
    return gr.CheckboxGroup(
        [(method.title, name) for name, method in native_methods().items()],
        value=DEFAULTS["lanes"],
        label="Lanes",
        info="Choose up to six. Vanilla always runs: it is the baseline.",
        elem_id="lanes",
    )


def _common(longest: int) -> list[gr.components.Component]:
    """A component a setting."""
    settings = [SETTINGS[name] for name in race_request.OFFERED]
    settings = [replace(each, shared_high=longest) if each.name == "max_new_tokens" else each for each in settings]
    middle = (len(settings) + 1) // 2
    found: list[gr.components.Component] = []
    for row in (settings[:middle], settings[middle:]):
        with gr.Row():
            found += map(_setting, row)
    return found


def _setting(setting: Setting) -> gr.components.Component:
    """A slider where the range is short enough for one, else a field."""
    low, high = setting.bounds(shared=True)
    about: dict[str, Any] = {"label": setting.label, "info": setting.help}
    if setting.choices:
        return gr.Radio([(word.capitalize(), word) for word in setting.choices], value=setting.default, **about)
    if setting.default is None:
        return gr.Textbox("auto", max_lines=1, **about)
    if high - low > 1e6:
        return gr.Number(setting.default, precision=0, minimum=low, **about)
    return gr.Slider(low, high, min(setting.default, high), step=setting.step, **about)


def _model(models: Sequence[str], dtypes: Sequence[str]) -> tuple[gr.Dropdown, gr.Dropdown]:
    model = gr.Dropdown(
        model_choices(models),
        value="",
        label="Model",
        info="Those that this server offers. The first race with one loads it.",
    )
    precisions = [("server default", ""), *((name, name) for name in dtypes)]
    info = "Same text as vanilla in float32 and int8. In 16 bits near ties may flip, except with SmolLM2 on a CPU."
    return model, gr.Dropdown(precisions, value="", label="Dtype", info=info)


def model_choices(models: Sequence[str]) -> list[tuple[str, str]]:
    """The names that may be chosen, and the server's own model."""
    return [("server default", ""), *((name, name) for name in models)]


def _files(shown: bool) -> gr.File:
    return gr.File(
        # Of any type: where the page refuses one, Gradio drops all of them.
        file_count="multiple",
        label=f"Your own documents: txt, md, html, pdf, docx, … up to {uploads.MAX_FILES} files, 2 MB",
        height=200,
        visible=shown,
        elem_id="files",
    )


def _options() -> dict[tuple[str, str], gr.components.Component]:
    """One component an option; a group a lane, which the page shows while the lane is ticked."""
    found: dict[tuple[str, str], gr.components.Component] = {}
    for lane, method in native_methods().items():
        if not method.options:
            continue
        with gr.Column(elem_id=f"options-{lane}", elem_classes="lane-group"):
            gr.HTML(f"<h3>{method.title}</h3>", elem_classes="lane-title")
            with gr.Row():
                for option in method.options:
                    found[lane, option.name] = _option(method, option)
    return found


def _option(method: Method, option: Option) -> gr.components.Component:
    label = option.name.replace("_", " ")
    if not isinstance(option.bounds, Bounds):
        return gr.Checkbox(bool(option.default), label=label, info=_sentence(option.bounds.help), min_width=200)
    low, high = option.bounds.low, option.bounds.high
    there = method.accelerator.get(option.name)
    on_gpu = f", on a GPU {there}" if there is not None and there != option.default else ""
    # Not gr.Number: it shows an empty one as 0.
    return gr.Textbox(
        label=label,
        placeholder=str(option.default),
        info=f"{_sentence(option.bounds.help)} {low} to {high}; empty is {option.default}{on_gpu}.",
        max_lines=1,
        max_length=race_request.MAX_WORD,
        min_width=200,
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _shown(value: Any) -> Any:
    return value if isinstance(value, bool) else str(value)


def _empty(option: Option) -> Any:
    return "" if isinstance(option.bounds, Bounds) else bool(option.default)
