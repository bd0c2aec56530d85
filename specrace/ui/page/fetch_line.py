"""The line that shows the progress of a model's download, and its button, which races with the fetched model."""

from __future__ import annotations

import html
from typing import Any

import gradio as gr

from specrace.ui.helper.fetcher import Fetcher
from specrace.ui.page.settings_panel import model_choices
from specrace.ui.races.model_choices import ModelChoices

# How often the page asks for the progress. Rarely, because each request takes time from the race under way.
PERIOD_S = 2.0
# A longer text gets a row of its own.
MAX_SHORT_CHARACTERS = 60


def build_line() -> tuple[gr.HTML, gr.Button]:
    """The line and its button; both are empty until there is something to show."""
    return gr.HTML("", elem_id="fetch-host"), gr.Button(visible=False, size="sm", elem_id="race-fetched")


class FetchLine:
    """The handlers of the line's events. `example` is the question to race on if the visitor has typed none."""

    def __init__(self, fetcher: Fetcher, models: ModelChoices, example: str) -> None:
        self._fetcher = fetcher
        self._models = models
        self._example = example

    def update(self) -> list[Any]:
        """The line, its button, the model field, and the timer, which stops once the fetch has ended."""
        fetcher = self._fetcher
        # `done` is read before the text, so that the timer stops only after the last text was shown.
        timer = gr.Timer(active=False) if fetcher.done else gr.skip()
        kind = "long" if len(fetcher.text) > MAX_SHORT_CHARACTERS else "short"
        if fetcher.ready:
            # CSS hides a line of the class "ready": the row has no room for it beside the button.
            kind = "ready"
        line = f'<p class="fetching {kind}" role="status">{html.escape(fetcher.text)}</p>'
        if not fetcher.ready:
            return [line, gr.skip(), gr.skip(), timer]
        button = gr.Button(f"Race with {fetcher.title}", visible=True)
        return [line, button, gr.Dropdown(choices=model_choices(list(self._models.offered))), timer]

    def choose(self, question: Any) -> list[Any]:
        """What the button sets: the question, the model, an empty line and, since it has done its work, no button."""
        is_blank = not isinstance(question, str) or not question.strip()
        return [self._example if is_blank else question, self._fetcher.name, "", gr.Button(visible=False)]
