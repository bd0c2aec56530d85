"""Logs of kinds that cannot be scored are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.files.containers import Rows
from specrace.lab.logs.files.sources import Source
from specrace.lab.logs.formats.refused import refused_title
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.written import SHAPES
from tests.lab.parts import write


@pytest.mark.parametrize(
    ("row", "title"),
    [
        ({"sessionId": "s", "projectHash": "h", "startTime": "t", "kind": "main"}, "Gemini CLI"),
        ({"sessionId": "s", "projectHash": "h", "messages": [{"type": "user", "content": "a"}]}, "Gemini CLI"),
        ({"role": "user", "message": {"content": [{"type": "text", "text": "a"}]}}, "Cursor"),
        ({"type": "session.start", "data": {"sessionId": "s"}, "id": "1", "timestamp": "t"}, "Copilot"),
        ({"id": 1, "timestamp": "t", "source": "agent", "action": "run", "args": {"command": "ls"}}, "OpenHands"),
        ({"id": "1", "timestamp": "t", "source": "user", "kind": "MessageEvent", "llm_message": {}}, "OpenHands"),
        ({"instance_id": "i", "history": [], "test_result": {}, "metadata": {}, "metrics": {}}, "OpenHands"),
        ({"ts": 1, "type": "say", "say": "text", "text": "a"}, "api_conversation_history"),
        ({"info": {"id": "m", "role": "user"}, "parts": []}, "opencode"),
        ({"prompt": "<user>a", "completion": "b", "modelTitle": "m", "completionOptions": {}}, "Continue"),
        (
            {
                "history": [
                    {"promptLogs": [{"prompt": "a", "completion": "b", "modelTitle": "m", "modelProvider": "p"}]}
                ]
            },
            "Continue",
        ),
        ({"eventName": "chatInteraction", "prompt": "a", "completion": "b", "modelTitle": "m"}, "Continue"),
        ({"title": "t", "mapping": {}, "current_node": "n"}, "ChatGPT"),
        ({"uuid": "u", "name": "n", "chat_messages": []}, "Claude's export"),
    ],
)
def test_a_log_without_the_requests_is_named_and_refused(row: dict[str, Any], title: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"t\.jsonl is .*{title}.*does not keep the requests .* give the log of"):
        list(TranscriptFile(write(tmp_path / "t.jsonl", row), skip_bad=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_formats_that_are_read_are_not_refused(shape: str, tmp_path: Path) -> None:
    for path in SHAPES[shape](tmp_path):
        if path.suffix == ".jsonl":
            rows = Rows(Source(path), None, lambda *_: None)
            assert not any(refused_title(row) for _, row in rows)
