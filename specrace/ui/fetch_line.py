"""What the page shows of a model that is fetched beside it: how far that is, then a button that races with it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from specrace.ui.fetcher import Fetcher
from specrace.ui.model_choices import ModelChoices
from specrace.ui.settings_panel import model_choices

# Seldom, for a race may be under way.
PERIOD_S = 2.0
# More characters than these get a row of their own.
SHORT = 60
EVENT: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "queue": False}


def build_line() -> tuple[gr.HTML, gr.Button]:
    """The line and its button, which are empty until there is something to show."""
    return gr.HTML("", elem_id="fetch-host"), gr.Button(visible=False, size="sm", elem_id="race-fetched")


def keep_current(
    page: gr.Blocks, fetcher: Fetcher, models: ModelChoices, shown: Sequence[gr.components.Component]
) -> None:
    """Ask how far it is until it has ended. `shown` are the line, its button and the choice of models."""
    clock = gr.Timer(PERIOD_S)
    gr.on([page.load, clock.tick], _look(fetcher, models), None, [*shown, clock], **EVENT)


def _look(fetcher: Fetcher, models: ModelChoices) -> Callable[[], list[Any]]:
    def look() -> list[Any]:
        # Asked before the text, which is the last one then.
        ended = gr.Timer(active=False) if fetcher.done else gr.skip()
        # Once it is ready the button says so, and the row has no room for both.
        kind = "ready" if fetcher.ready else "long" if len(fetcher.text) > SHORT else "short"
        line = f'<p class="fetching {kind}" role="status">{html.escape(fetcher.text)}</p>'
        if not fetcher.ready:
            return [line, gr.skip(), gr.skip(), ended]
        button = gr.Button(f"Race with {fetcher.title}", visible=True)
        return [line, button, gr.Dropdown(choices=model_choices(list(models.known))), ended]

    return look


def choose(fetcher: Fetcher, first: str) -> Callable[[Any], list[Any]]:
    """What the button sets: the present question, or the `first` example where there is none, and the model."""

    def chosen(question: Any) -> list[Any]:
        present = question if isinstance(question, str) and question.strip() else first
        return [present, fetcher.name, "", gr.Button(visible=False)]

    return chosen
