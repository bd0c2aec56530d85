"""Sessions of coding agents as logs: what is counted, and that one answer's fault does not affect the other answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.lab.logs.formats.agents import sessions
from specrace.lab.logs.formats.base import Message
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.agents.test_claude_code import IMAGE, answer, user
from tests.lab.logs.formats.agents.test_codex import answer as codex_answer
from tests.lab.logs.formats.agents.test_codex import meta
from tests.lab.logs.formats.agents.test_codex import user as codex_user
from tests.lab.parts import write


def tokenize_chat(messages: list[Message], output: Message, *_: Any) -> tuple[list[int], list[int], tuple[str, ...]]:
    """Stands in for a chat template and its tokenizer, which refuse the answer "bad". The ids do not matter here."""
    if output["content"] == "bad":
        raise ValueError("the template refuses this")
    return [len(messages)], [1], ()


def test_answers_that_are_left_out_do_not_make_the_file_bad(tmp_path: Path) -> None:
    """The answer "c" is left out, because its prompt has an image."""
    rows = [user("1", None, "a"), answer("2", "1", "b"), user("3", "2", [IMAGE]), answer("4", "3", "c")]
    file = TranscriptFile(write(tmp_path / "t.jsonl", *rows), chat=tokenize_chat)
    assert len(list(file)) == 1
    assert (dict(file.remarks.left_out), file.skipped) == ({sessions.MEDIA: 1}, 0)


def test_an_answer_that_is_left_out_in_one_file_is_scored_from_another(tmp_path: Path) -> None:
    rows = [user("1", None, "a"), answer("2", "1", "b"), user("3", "2", "c"), answer("4", "3", "d")]
    seen = set[str]()
    without_first_line = TranscriptFile(write(tmp_path / "cut.jsonl", *rows[1:]), chat=tokenize_chat, seen=seen)
    complete = TranscriptFile(write(tmp_path / "complete.jsonl", *rows), chat=tokenize_chat, seen=seen)
    assert (len(list(without_first_line)), len(list(complete))) == (0, 2)
    assert dict(without_first_line.remarks.left_out) == {sessions.LOST: 2}
    second_reading = TranscriptFile(tmp_path / "complete.jsonl", chat=tokenize_chat, seen=seen)
    assert (len(list(second_reading)), second_reading.remarks.repeated) == (0, 2)


def test_a_line_that_is_not_json_makes_later_answers_of_its_session_unusable(tmp_path: Path) -> None:
    """Line 5 is broken, so B and C are left out. A comes before it, and D is in another session."""
    rows: list[Any] = [meta("s"), codex_user("a"), codex_answer("A"), codex_user("b"), b'{"type": "respon']
    rows += [codex_answer("B"), codex_user("c"), codex_answer("C"), meta("t"), codex_user("d"), codex_answer("D")]
    path = write(tmp_path / "t.jsonl", *rows)
    with pytest.raises(InputError, match="line 5: this is not JSON"):
        list(TranscriptFile(path, chat=tokenize_chat))
    file = TranscriptFile(path, chat=tokenize_chat, skip_bad=True)
    assert len(list(file)) == 2
    assert (dict(file.remarks.left_out), file.skipped) == ({sessions.UNREADABLE: 2}, 1)


def test_an_answer_that_cannot_be_rendered_does_not_affect_the_others(tmp_path: Path) -> None:
    # These answers are branches after one line; only the end of the file completes them.
    rows = [user("1", None, "a"), *(answer(f"{n}", "1", text) for n, text in enumerate(("b", "bad", "c"), start=2))]
    file = TranscriptFile(write(tmp_path / "t.jsonl", *rows), chat=tokenize_chat, skip_bad=True)
    assert len(list(file)) == 2
    assert dict(file.faults) == {"the template refuses this": 1}


def test_a_tools_text_about_removed_parts_is_not_a_redaction(tmp_path: Path) -> None:
    outputs = ("<local-command-stdout>Removed 3 files</local-command-stdout>", "see: [... truncated 3 lines]")
    for number, text in enumerate(outputs):
        path = write(tmp_path / f"{number}.jsonl", user("1", None, text), answer("2", "1", "b"))
        assert len(list(TranscriptFile(path, chat=tokenize_chat))) == 1
    masked = write(tmp_path / "masked.jsonl", user("1", None, "a"), answer("2", "1", "[REDACTED]"))
    with pytest.raises(InputError, match="the answer is redacted"):
        list(TranscriptFile(masked, chat=tokenize_chat))
