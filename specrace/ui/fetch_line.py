"""What the page shows of a model that is being fetched: its progress, then a button that races with it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from specrace.ui.fetcher import Fetcher
from specrace.ui.model_choices import ModelChoices
from specrace.ui.settings_panel import model_choices

# Slow, because a race may be under way.
PERIOD_S = 2.0
# A longer text gets a row of its own.
MAX_SHORT_CHARACTERS = 60
EVENT: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "queue": False}


def build_line() -> tuple[gr.HTML, gr.Button]:
    """The line and its button; both are empty until there is something to show."""
    return gr.HTML("", elem_id="fetch-host"), gr.Button(visible=False, size="sm", elem_id="race-fetched")


def show_progress(
    page: gr.Blocks, fetcher: Fetcher, models: ModelChoices, components: Sequence[gr.components.Component]
) -> None:
    """Show a fetch's progress until it ends. `components`: the line, its button, and the choice of models."""
    clock = gr.Timer(PERIOD_S)
    gr.on([page.load, clock.tick], _progress(fetcher, models), None, [*components, clock], **EVENT)


def _progress(fetcher: Fetcher, models: ModelChoices) -> Callable[[], list[Any]]:
    def look() -> list[Any]:
        # `done` is read before the text, so that the clock stops only after the last text was shown.
        ended = gr.Timer(active=False) if fetcher.done else gr.skip()
        kind = "long" if len(fetcher.text) > MAX_SHORT_CHARACTERS else "short"
        if fetcher.ready:
            # CSS hides such a line, for which the row has no room beside the button.
            kind = "ready"
        line = f'<p class="fetching {kind}" role="status">{html.escape(fetcher.text)}</p>'
        if not fetcher.ready:
            return [line, gr.skip(), gr.skip(), ended]
        button = gr.Button(f"Race with {fetcher.title}", visible=True)
        return [line, button, gr.Dropdown(choices=model_choices(list(models.offered))), ended]

    return look


def choose_fetched(fetcher: Fetcher, example: str) -> Callable[[Any], list[Any]]:
    """What the button's press sets: the question, which is `example` if the field is empty, and the model."""

    def choose(question: Any) -> list[Any]:
        is_blank = not isinstance(question, str) or not question.strip()
        return [example if is_blank else question, fetcher.name, "", gr.Button(visible=False)]

    return choose
