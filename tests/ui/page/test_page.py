"""Starting and stopping races from the page."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from specrace.ui.page import page
from specrace.ui.page.audience import Audience
from specrace.ui.page.events import PageEvents
from specrace.ui.page.settings_panel import PRESETS, preset_values
from specrace.ui.races.backend import Backend
from specrace.ui.races.job import Job
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.races.worker import Worker
from specrace.ui.server.guard import Hosts
from specrace.ui.server.telemetry import Telemetry
from specrace.ui.server.visitors import Visitors


def test_a_stop_is_not_lost_while_documents_are_being_read() -> None:
    """The race does not exist yet when it is stopped. Another visitor's stop has no effect on it."""
    # The worker is not started, so it loads nothing, and no race runs.
    worker = Worker(MagicMock())
    request: Any = SimpleNamespace(session_hash="mine", client=None)

    def start_while_stopping(visit: str) -> Job:
        workbenches: Any = SimpleNamespace(read=lambda *_: worker.queue.stop(visit))
        events = PageEvents(Backend(worker, ModelChoices(), Visitors(), workbenches), [])
        # No files, the server's model and dtype, no servers, no reference.
        answer = json.loads(events.start("Why?", None, "", "", [], "", request, *preset_values(PRESETS[0])))
        job = worker.queue.find(answer["key"])
        assert job is not None
        return job

    assert not start_while_stopping("other").stopped
    assert start_while_stopping("mine").stopped


def test_a_spaces_request_for_a_node_server_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio would start a Node server, and wait for that server before it answers requests."""
    monkeypatch.setenv("GRADIO_SSR_MODE", "true")
    options = page.mount_options(MagicMock(), Visitors(), Audience(Hosts()), Telemetry())
    assert options["ssr_mode"] is False
