"""Starting and stopping races from the page."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from specrace.engine.spec import RaceSpec
from specrace.ui.page import page, settings_panel
from specrace.ui.page.audience import Audience
from specrace.ui.page.events import PageEvents
from specrace.ui.races import race_request
from specrace.ui.races.job import Job
from specrace.ui.races.worker import Worker
from specrace.ui.server.guard import Hosts
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import Visitors


def test_a_stop_is_not_lost_while_documents_are_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race does not exist yet when it is stopped. Another visitor's stop has no effect on it."""
    worker = Worker(MagicMock())
    requested = race_request.RaceRequest("q", RaceSpec(("vanilla",)), None)
    monkeypatch.setattr(race_request, "parse_request", lambda *_: requested)
    monkeypatch.setattr(settings_panel, "read_options", lambda _: {})
    anything, request = MagicMock(), SimpleNamespace(session_hash="mine", client=None)

    def started(stopping: str) -> Job:
        workbenches = SimpleNamespace(read=lambda *_: worker.queue.stop(stopping))
        events = PageEvents(worker, workbenches, anything, anything, [])  # type: ignore[arg-type]
        answer = json.loads(events.start("q", None, "", "", request, []))  # type: ignore[arg-type]
        job = worker.queue.find(answer["key"])
        assert job is not None
        return job

    assert not started("other").stopped
    assert started("mine").stopped


def test_a_spaces_request_for_a_node_server_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio would start a Node server, and wait for that server before it answers requests."""
    monkeypatch.setenv("GRADIO_SSR_MODE", "true")
    mounting = page.mount_options(MagicMock(), Visitors(), Audience(Hosts()), Telemetry())
    assert mounting["ssr_mode"] is False
