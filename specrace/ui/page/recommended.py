"""The button *Race these settings*: sets the lanes and options that *Your logs* recommends, and races."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr

from specrace.core.errors import InputError
from specrace.core.settings import SETTINGS
from specrace.drafters import find_method, native_methods
from specrace.ui.page import lane_choices
from specrace.ui.page.settings_panel import COMMON, Panel, recommended_preset

# JavaScript: TAKE returns the recommended settings as JSON; RACE starts a race once the fields are filled with them.
TAKE, RACE = "() => [specrace.takeRecommended()]", "() => specrace.raceRecommended()"
# Characters of the settings that are read. A lane's settings are short, but a client may send any text.
MAX_CHARACTERS = 2000


def connect_recommended(question: gr.Textbox, panel: Panel, options: dict[str, Any]) -> None:
    """Build the hidden button that the page's scripts press. `options` are passed on to Gradio's events.

    The event's input is `question`, but any field would do: JavaScript sends the settings in place of its value.
    """
    button = gr.Button("Race these settings", visible="hidden", elem_id="race-recommended")
    filled = [*panel.common, *panel.options.values()]
    done = button.click(choose_recommended, question, filled, js=TAKE, **options)
    done.success(None, None, None, js=RACE, **options)


def choose_recommended(text: Any) -> list[Any]:
    """The values of the panel's fields for `text`, JSON as {"method": ..., "num_draft": ..., "options": {...}}.

    Fields that the settings do not concern stay unchanged. Raises InputError for any other text.
    """
    preset = recommended_preset(_parse(text))
    common = preset.common | {"lanes": lane_choices.tick(preset.common["lanes"])}
    values = [common.get(name, gr.skip()) for name in COMMON]
    for lane, method in native_methods().items():
        chosen = preset.options.get(lane)
        for option in method.options:
            if chosen is None:
                values.append(gr.skip())
            elif option.name in chosen:
                value = chosen[option.name]
                values.append(value if isinstance(value, bool) else str(value))
            else:
                values.append(lane_choices.empty_value(option))
    return values


def _parse(text: Any) -> dict[str, Any]:
    """The settings in `text`, checked. Raises InputError."""
    try:
        settings = json.loads(str(text)[:MAX_CHARACTERS])
        method, options = find_method(str(settings["method"])), dict(settings["options"])
        num_draft = SETTINGS["num_draft"].check(settings["num_draft"], shared=True)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError("These settings cannot be read; score the log again.") from error
    return {"method": method.name, "num_draft": num_draft, **method.check(options)}
