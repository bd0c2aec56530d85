"""Shows on the page how far the fetch of a model is, then a button that races with the model."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from specrace.ui.helper.fetcher import Fetcher
from specrace.ui.page.settings_panel import model_choices
from specrace.ui.races.model_choices import ModelChoices

# Long, because each request costs a race that is under way some time.
PERIOD_S = 2.0
# A longer text gets a separate row.
MAX_SHORT_CHARACTERS = 60
EVENT: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "queue": False}


def build_line() -> tuple[gr.HTML, gr.Button]:
    """The line and its button; both are empty until there is something to show."""
    return gr.HTML("", elem_id="fetch-host"), gr.Button(visible=False, size="sm", elem_id="race-fetched")


def show_progress(
    page: gr.Blocks, fetcher: Fetcher, models: ModelChoices, components: Sequence[gr.components.Component]
) -> None:
    """Show a fetch's progress until it ends. `components` are the line, its button, and the model field."""
    clock = gr.Timer(PERIOD_S)
    gr.on([page.load, clock.tick], _progress(fetcher, models), None, [*components, clock], **EVENT)


def _progress(fetcher: Fetcher, models: ModelChoices) -> Callable[[], list[Any]]:
    def update() -> list[Any]:
        # `done` is read before the text, so that the timer stops only after the last text was shown.
        clock = gr.Timer(active=False) if fetcher.done else gr.skip()
        kind = "long" if len(fetcher.text) > MAX_SHORT_CHARACTERS else "short"
        if fetcher.ready:
            # CSS hides a line of this kind: the row has no room for it beside the button.
            kind = "ready"
        line = f'<p class="fetching {kind}" role="status">{html.escape(fetcher.text)}</p>'
        if not fetcher.ready:
            return [line, gr.skip(), gr.skip(), clock]
        button = gr.Button(f"Race with {fetcher.title}", visible=True)
        return [line, button, gr.Dropdown(choices=model_choices(list(models.offered))), clock]

    return update


def choose_fetched(fetcher: Fetcher, example: str) -> Callable[[Any], list[Any]]:
    """The button's handler: it sets the question (to `example` if the field is empty) and the model."""

    def choose(question: Any) -> list[Any]:
        is_blank = not isinstance(question, str) or not question.strip()
        return [example if is_blank else question, fetcher.name, "", gr.Button(visible=False)]

    return choose
