"""Lists of questions: what the page is told about each question's race, and which questions it suggests."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from specrace.core.errors import InputError
from specrace.retrieval.documents import Document
from specrace.ui.helper.upload_reader import NUM_SUGGESTED, Upload
from specrace.ui.page.events import PageEvents
from specrace.ui.page.question_lists import NO_QUESTION, ListEvents
from specrace.ui.page.settings_panel import PRESETS, preset_values
from specrace.ui.races.backend import Backend
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.races.worker import Worker
from specrace.ui.server.visitors import Visitors
from specrace.ui.visitor_limits import VisitorLimits

VALUES = preset_values(PRESETS[0])
REQUEST: Any = SimpleNamespace(session_hash="mine", client=None)


def list_events(
    upload: Upload | InputError | None = None, examples: tuple[str, ...] = (), **limits: int
) -> tuple[ListEvents, Worker]:
    """The events of a page with these limits; `upload` is what the visitor's documents are read into."""

    def read(*_: Any) -> Upload | None:
        if isinstance(upload, InputError):
            raise upload
        return upload

    bounds = VisitorLimits(**limits)
    # The worker is not started, so it loads nothing, and no race runs.
    worker = Worker(MagicMock(), bounds)
    workbenches: Any = SimpleNamespace(read=read)
    return ListEvents(PageEvents(Backend(worker, ModelChoices(), Visitors(bounds), workbenches), examples)), worker


def race(events: ListEvents, question: str = "Why?", lanes: Any = ("vanilla", "trie"), visit: str = "mine") -> Any:
    """The answer to a question of a list."""
    request: Any = SimpleNamespace(session_hash=visit, client=None)
    # No files, the server's model and dtype, no servers, no reference. VALUES begins with the lanes, given here.
    return json.loads(events.race(question, None, "", "", [], "", request, list(lanes), *VALUES[1:]))


def test_each_question_is_one_race_in_line_behind_those_of_others() -> None:
    events, worker = list_events()
    first, other = race(events), race(events, visit="other")
    assert first["phase"] == other["phase"] == "waiting" and first["id"] != other["id"]
    second = worker.queue.find(race(events, "How?")["key"])
    # A page has at most one race in line, so the second one has replaced the first.
    assert second is not None and worker.queue.num_ahead(second) == 1
    assert worker.queue.find(first["key"]) is None


def test_a_reached_limit_is_told_apart_from_a_refusal() -> None:
    events, _ = list_events(races_per_minute=1)
    assert race(events)["phase"] == "waiting"
    answer = race(events)
    assert (answer["phase"], answer["message"]) == (
        "busy",
        "You have started 1 races within a minute; wait for a moment.",
    )
    answer = race(list_events(queue=0)[0])
    assert (answer["phase"], answer["message"][:33]) == ("busy", "0 races are waiting already; try ")
    answer = race(events, lanes=["nothing"])
    assert answer["phase"] == "refused" and "nothing" in answer["message"]
    answer = race(list_events(InputError("notes.md is broken."))[0])
    assert (answer["phase"], answer["key"], answer["message"]) == ("refused", "", "notes.md is broken.")


def test_questions_are_suggested_from_the_documents_in_use() -> None:
    def suggest(events: ListEvents) -> tuple[list[str], str]:
        answer = json.loads(events.suggest(None, REQUEST))
        return answer["questions"], answer["message"]

    upload = Upload(("a.md",), 1, (), ("What do the documents say about “Owls”?",), b"")
    assert suggest(list_events(upload, ("Why?",))[0]) == (list(upload.examples), "")
    many = tuple(f"Why {number}?" for number in range(NUM_SUGGESTED + 1))
    assert suggest(list_events(None, many)[0]) == (list(many[:NUM_SUGGESTED]), "")
    events, worker = list_events()
    questions, message = suggest(events)
    assert not questions and "not read yet" in message
    documents = [Document(f"{number}.md", f"Owls {number}", "Owls hunt.") for number in range(3 * NUM_SUGGESTED)]
    worker.loading.workbench = SimpleNamespace(documents=documents)  # type: ignore[assignment]
    questions, message = suggest(events)
    assert len(questions) == NUM_SUGGESTED and not message
    assert questions[:2] == ["What do the documents say about “Owls 0”?", "What do the documents say about “Owls 3”?"]
    worker.loading.workbench = SimpleNamespace(documents=[])  # type: ignore[assignment]
    assert suggest(events) == ([], NO_QUESTION)
