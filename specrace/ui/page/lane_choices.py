"""The lanes that a visitor can choose: a box for each of our methods, and one for each lane that a visitor adds.

A lane is a drafting method with its options. An added lane is another engine's drafter, or a method once more with
other options, which are in the lane's name (`specrace.engine.lane_name`).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from specrace.core.errors import InputError
from specrace.drafters import METHODS, find_method, native_methods
from specrace.drafters.base import Flag, Method, Option
from specrace.engine.lane_name import LaneName, method_of, parse_lane
from specrace.ui.races.race_request import check_lanes

# Options of all of Gradio's events here.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# Options of events that may show a warning: Gradio shows it only if the event goes through its queue.
QUEUED: dict[str, Any] = QUIET | {"concurrency_limit": None}


def boxes(lanes: Sequence[str]) -> list[tuple[str, str]]:
    """(title, name) of each box, in the registry's order: our methods, and those of `lanes` that a visitor added."""
    native = native_methods()
    added = [name for name in lanes if name not in native]
    order = list(METHODS)
    names = sorted([*native, *added], key=lambda name: order.index(method_of(name).name))
    return [(title_of(name), name) for name in names]


def title_of(name: str) -> str:
    """A lane's title before a race, with the options in its name."""
    lane = parse_lane(name)
    return lane.title(lane.options)


def tick(lanes: Sequence[str]) -> Any:
    """The update of the boxes that ticks `lanes`; those without a box get one."""
    return gr.update(choices=boxes(lanes), value=list(lanes))


def add_lane(lanes: Any, method: Any, text: Any) -> tuple[Any, Any]:
    """The boxes with one more lane, ticked, and an empty options field. If the lane cannot be added, shows why.

    `text`: the lane's options, such as "n=3, prefix=2".
    """
    # Options may also be separated by colons, as in the name of a lane: "trie:n=3:prefix=2".
    options = [option.strip() for option in str(text or "").replace(":", ",").split(",") if option.strip()]
    name = ":".join([str(method or ""), *(option.replace(" ", "") for option in options)])
    update = _with_lane(lanes, name)
    return (gr.skip(), gr.skip()) if update is None else (update, "")


def duplicate_lane(method: Method, lanes: Any, *values: Any) -> list[Any]:
    """The boxes with one more lane of the method, ticked, with these `values` of its options; then its fields, emptied.

    If the lane cannot be added, for instance because no option was changed, shows why.
    """
    changed = {
        option.name: value for option, value in zip(method.options, values, strict=True) if is_set(option, value)
    }
    skipped = [gr.skip()] * (1 + len(values))
    try:
        name = str(LaneName.of(method, changed))
    except InputError as error:
        _warn(error)
        return skipped
    update = _with_lane(lanes, name)
    return skipped if update is None else [update, *map(empty_value, method.options)]


def is_set(option: Option, value: Any) -> bool:
    """Whether an option's field has a value: text, or for a checkbox a state other than the default."""
    if isinstance(value, bool):
        return value != option.default
    return value is not None and bool(str(value).strip())


def empty_value(option: Option) -> Any:
    """The value of an option's field that leaves the option at its default: "" or, for a checkbox, the default."""
    return bool(option.default) if isinstance(option.bounds, Flag) else ""


def build_adder(lanes: gr.CheckboxGroup) -> None:
    """Build the row that adds a lane to the boxes `lanes`."""
    methods = [(method.title, name) for name, method in METHODS.items() if name != "vanilla"]
    with gr.Row(elem_id="lane-adder"):
        method = gr.Dropdown(
            methods,
            value="trie",
            label="Another lane",
            info="A lane once more with other options, or another engine's drafter.",
            elem_id="added-method",
            scale=2,
        )
        options = gr.Textbox(**_describe_options("trie"), max_lines=1, max_length=200, elem_id="added-options", scale=3)
        button = gr.Button("Add lane", size="sm", elem_id="add-lane", scale=0, min_width=110)
    method.change(lambda name: gr.update(**_describe_options(name)), method, options, queue=False, **QUIET)
    gr.on([button.click, options.submit], add_lane, [lanes, method, options], [lanes, options], **QUEUED)


def build_duplicator(method: Method, lanes: gr.CheckboxGroup, fields: Sequence[gr.components.Component]) -> None:
    """Build the button that adds a lane with the options in the method's `fields`."""
    button = gr.Button("Duplicate lane", size="sm", elem_id=f"duplicate-{method.name}", elem_classes="duplicate")
    # `api_name=False`: Gradio would name the event after its function, but a partial has no name.
    button.click(partial(duplicate_lane, method), [lanes, *fields], [lanes, *fields], api_name=False, **QUEUED)


def _with_lane(lanes: Any, name: str) -> Any:
    """The update of the boxes with one more lane; None if it cannot be added, and then the reason is shown."""
    try:
        return tick(check_lanes([*(lanes or ()), name]))
    except InputError as error:
        _warn(error)
        return None


def _warn(error: InputError) -> None:
    gr.Warning(html.escape(str(error), quote=False))


def _describe_options(name: str) -> dict[str, Any]:
    """The texts of the options field, for the method `name`."""
    method = find_method(name)
    described = [_describe_option(option) for option in method.options]
    first = [f"{option.name}={str(option.default).lower()}" for option in method.options[:2]]
    return {
        "label": "Its options",
        "info": f"{'; '.join(described)}." if described else "This lane has no options.",
        "placeholder": ", ".join(first),
    }


def _describe_option(option: Option) -> str:
    default = str(option.default).lower()
    if isinstance(option.bounds, Flag):
        return f"{option.name} ({default})"
    return f"{option.name} {option.bounds.low} to {option.bounds.high} ({default})"
