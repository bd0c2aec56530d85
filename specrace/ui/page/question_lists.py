"""Races a visitor's list of questions (*Questions*): one race at a time, in line with everybody else's.

The list itself is kept by the page's scripts (`static/questions`). They press hidden buttons, because only Gradio's
events have the values of the settings and the visit's documents.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from specrace.core.errors import InputError
from specrace.ui.page.events import PageEvents
from specrace.ui.server.visitors import TooManyError
from specrace.ui.wire import ListedMessage, SuggestedMessage, to_json

# JavaScript: it gets the values of a race's fields, and returns them for the list's next question.
NEXT_QUESTION = "(...values) => specrace.nextQuestion(values)"
NO_QUESTION = "No question can be made from these documents; type some."


def connect_lists(
    events: PageEvents,
    inputs: Sequence[gr.components.Component],
    files: gr.File,
    stage: gr.HTML,
    options: dict[str, Any],
) -> None:
    """Build the hidden buttons that the page's scripts press. The answers go to the stage.

    `inputs` are a race's fields, the second of which is `files`; `options` are passed on to Gradio's events.
    """
    listed = ListEvents(events)
    race = gr.Button("Race the next question", visible="hidden", elem_id="race-listed")
    # `api_name=False`: otherwise this event would take the name of the API's endpoint, `race`.
    race.click(listed.race, inputs, stage, js=NEXT_QUESTION, api_name=False, **options)
    suggest = gr.Button("Suggest questions", visible="hidden", elem_id="suggest-listed")
    suggest.click(listed.suggest, files, stage, api_name=False, **options)


class ListEvents:
    """What the hidden buttons do on the server."""

    def __init__(self, events: PageEvents) -> None:
        self._events = events

    def race(
        self, question: Any, files: list[dict[str, Any]] | None, model: Any, dtype: Any, servers: Any, reference: Any,
        request: gr.Request, lanes: Any, *values: Any,
    ) -> str:  # fmt: skip
        """Put the race of a list's question in the queue; it runs once. Returns a ListedMessage as JSON."""
        fields = (question, model, dtype, servers, reference, lanes, *values)

        def submit() -> ListedMessage:
            job = self._events.submit(request, files, fields, lambda _: False)
            if job.error:
                raise InputError(job.error)
            return ListedMessage(_new_id(), "waiting", job.key)

        return to_json(_answer(submit))

    def suggest(self, files: list[dict[str, Any]] | None, request: gr.Request) -> str:
        """Questions about the documents in use, or why there are none: a SuggestedMessage as JSON."""
        try:
            questions = list(self._events.suggest(files, request))
        except InputError as error:
            return to_json(SuggestedMessage(_new_id(), [], str(error)))
        return to_json(SuggestedMessage(_new_id(), questions, "" if questions else NO_QUESTION))


def _answer(submit: Callable[[], ListedMessage]) -> ListedMessage:
    """The message that `submit` returns, or one that says why there is no race."""
    try:
        return submit()
    except TooManyError as error:
        return ListedMessage(_new_id(), "busy", message=str(error))
    except InputError as error:
        return ListedMessage(_new_id(), "refused", message=str(error))


def _new_id() -> str:
    return secrets.token_urlsafe(8)
