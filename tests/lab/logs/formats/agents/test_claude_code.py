"""Claude Code's sessions: branches, responses of several lines, subagents, and what the model did not read or write.

A line names its parent by its uuid; the chain of parents is the conversation before it. Lines of subagents are marked
isSidechain. A compaction puts a summary in place of the conversation so far.
"""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats.agents import sessions
from specrace.lab.logs.formats.agents.claude_code import ATTACHED, EDITED, TOOL_WROTE, ClaudeCode
from specrace.lab.logs.formats.apis.messages import HIDDEN_REASONING
from specrace.lab.logs.formats.base import Exchange, Format, Usage

Rows = list[dict[str, Any]]


def read(rows: Rows, reader: Format | None = None) -> list[Exchange]:
    """The exchanges of a whole session file."""
    reader = reader or ClaudeCode()
    return [exchange for row in rows for exchange in reader.read(row)] + list(reader.end())


def line(kind: str, uuid: str, parent: str | None, content: Any = None, **more: Any) -> dict[str, Any]:
    """A line of this type. The message id of an assistant's line is "m" and its uuid, unless `id` is given."""
    row: dict[str, Any] = {"type": kind, "sessionId": "s", "parentUuid": parent, "uuid": uuid, "isSidechain": False}
    identity = more.pop("id", f"m{uuid}")
    inner = {key: more.pop(key) for key in ("model", "usage", "stop_reason", "context_management") if key in more}
    if kind in ("user", "assistant"):
        row["message"] = {"role": kind, "content": content} | ({"id": identity} if kind == "assistant" else {}) | inner
    elif content is not None:
        row["content"] = content
    return row | more


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """A user's line."""
    return line("user", uuid, parent, content, **more)


def answer(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """An assistant's line with this text or these blocks."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return line("assistant", uuid, parent, blocks, **more)


def tool_use(call: str, path: str = "a") -> dict[str, Any]:
    """The block with which the model calls the tool Read; `call` is the call's id."""
    return {"type": "tool_use", "id": call, "name": "Read", "input": {"path": path}}


def tool_result(call: str, text: Any) -> dict[str, Any]:
    """The block with the result of a call."""
    return {"type": "tool_result", "tool_use_id": call, "content": text}


def scored(exchanges: list[Exchange]) -> list[tuple[list[str], str]]:
    """(texts of the prompt, text of the answer) of the exchanges that are scored."""
    return [
        ([message["content"] for message in exchange.prompt], exchange.output["content"])  # type: ignore[index, call-overload, union-attr]
        for exchange in exchanges
        if not exchange.left_out
    ]


def reasons(exchanges: list[Exchange]) -> list[str]:
    """The reason for each exchange that is left out."""
    return [exchange.left_out for exchange in exchanges if exchange.left_out]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}


def test_a_tools_result_ends_a_turn_and_begins_the_next() -> None:
    rows = [
        user("1", None, "list"),
        answer("2", "1", [{"type": "thinking", "thinking": "hm", "signature": "x"}], id="m"),
        answer("3", "2", "I look.", id="m"),
        answer("4", "3", [tool_use("t")], id="m"),
        user("5", "4", [tool_result("t", [{"type": "text", "text": "a.txt"}])]),
        answer("6", "5", "One file."),
    ]
    first, second = read(rows)
    call = {"id": "t", "type": "function", "function": {"name": "Read", "arguments": {"path": "a"}}}
    turn = {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}
    assert (first.prompt, first.output) == ([{"role": "user", "content": "list"}], turn)
    assert second.prompt == [*first.prompt, turn, {"role": "tool", "content": "a.txt", "tool_call_id": "t"}]
    assert (second.output, second.id) == ({"role": "assistant", "content": "One file."}, "s")


def test_each_branch_is_scored_after_its_own_chain() -> None:
    rows = [
        user("1", None, "hello"),
        answer("2", "1", "hi"),
        user("3", "2", "left"),
        answer("4", "3", "L"),
        user("5", "2", "right"),
        answer("6", "5", "R"),
        # The user goes back to the left branch.
        user("7", "4", "on"),
        answer("8", "7", "O"),
    ]
    assert sorted(scored(read(rows))) == [
        (["hello"], "hi"),
        (["hello", "hi", "left"], "L"),
        (["hello", "hi", "left", "L", "on"], "O"),
        (["hello", "hi", "right"], "R"),
    ]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]])
def test_results_of_parallel_calls_are_in_the_next_prompt_in_the_order_of_the_calls(order: list[int]) -> None:
    calls = [
        answer("2", "1", [tool_use("t1")], id="m"),
        answer("3", "2", [tool_use("t2")], id="m"),
        user("4", "2", [tool_result("t1", "one")]),
        user("5", "3", [tool_result("t2", "two")]),
    ]
    for parent in ("4", "5"):
        rows = [user("1", None, "read"), *(calls[index] for index in order), answer("6", parent, "Both.")]
        first, second = read(rows)
        assert [call["id"] for call in first.output["tool_calls"]] == ["t1", "t2"]  # type: ignore[index, call-overload]
        assert [message["content"] for message in second.prompt] == ["read", "", "one", "two"]  # type: ignore[index]


def test_a_line_between_a_call_and_its_result_does_not_break_the_chain() -> None:
    rows = [
        user("1", None, "read"),
        line("attachment", "2", "1", attachment={"type": "todo_reminder"}),
        answer("3", "2", [tool_use("t")]),
        line("progress", "4", "3", data={"type": "hook_progress"}),
        user("5", "4", [tool_result("t", "one")]),
        line("system", "6", "5", subtype="turn_duration"),
        answer("7", "6", "Done."),
    ]
    assert scored(read(rows))[1] == (["read", "", "one"], "Done.")


def test_a_response_over_several_lines_is_one_answer_even_if_a_line_is_repeated() -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b", id="m", usage={"input_tokens": 3, "output_tokens": 1}),
        answer("2", "1", "b", id="m", usage={"input_tokens": 3, "output_tokens": 1}),
        answer(
            "3",
            "2",
            "c",
            id="m",
            usage={
                "input_tokens": 3,
                "cache_creation_input_tokens": 40,
                "cache_read_input_tokens": 500,
                "output_tokens": 9,
            },
        ),
    ]
    (exchange,) = read(rows)
    assert scored([exchange]) == [(["a"], "bc")]
    assert exchange.usage == Usage(prompt=543, output=9)


def text(content: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": content}


def test_lines_that_repeat_the_answer_so_far_take_its_place() -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", "I", id="m"),
        answer("3", "1", "I look.", id="m"),
        answer("4", "3", [text("I look."), tool_use("t")], id="m"),
        user("5", "4", [tool_result("t", "r")]),
        answer("6", "5", "b"),
    ]
    first, second = read(rows)
    assert scored([first, second]) == [(["a"], "I look."), (["a", "I look.", "r"], "b")]
    assert [call["id"] for call in first.output["tool_calls"]] == ["t"]  # type: ignore[index, call-overload]


def test_parts_that_begin_alike_are_parts_of_one_answer() -> None:
    blank = [answer("2", "1", "\n\n", id="m"), answer("3", "2", "\n\nb", id="m")]
    thought = [
        answer("2", "1", [{"type": "thinking", "thinking": "b"}, text("b")], id="m"),
        answer("3", "2", "bc", id="m"),
    ]
    assert scored(read([user("1", None, "a"), *blank])) == [(["a"], "\n\n\n\nb")]
    assert scored(read([user("1", None, "a"), *thought])) == [(["a"], "bbc")]


def test_an_output_count_from_the_beginning_of_a_response_is_ignored() -> None:
    # One token cannot have a hundred characters.
    rows = [user("1", None, "a"), answer("2", "1", "word " * 20, usage={"input_tokens": 3, "output_tokens": 1})]
    (exchange,) = read(rows)
    assert exchange.usage == Usage(prompt=3)
    rows[1]["message"]["usage"]["output_tokens"] = 21
    assert read(rows)[0].usage == Usage(prompt=3, output=21)


def test_a_resumed_sessions_copy_of_an_answer_has_the_key_of_the_original() -> None:
    first = read([user("1", None, "a"), answer("2", "1", "b", id="m")])
    copied = [user("1", None, "a"), answer("2", "1", "b", id="m"), user("3", "2", "c"), answer("4", "3", "d", id="n")]
    for row in copied:
        row["sessionId"] = "t"
    exchanges = read(copied)
    assert [exchange.key == first[0].key for exchange in exchanges] == [True, False]
    # Another session may use the same message ids.
    other_session = read([user("1", None, "a"), answer("2", "1", "e", id="m")])
    assert other_session[0].key != first[0].key
    without_id = [line("assistant", "9", "1", "b", id=None)]
    assert read([user("1", None, "a"), *without_id])[0].key != first[0].key


def test_two_sessions_in_the_order_of_time_are_two_conversations() -> None:
    rows = [
        user("1", None, "a"),
        user("1", None, "b", sessionId="t"),
        answer("2", "1", "A", id="m"),
        answer("2", "1", "B", id="m", sessionId="t"),
        user("3", "2", "c", sessionId="t"),
        user("3", "2", "d"),
        answer("4", "3", "C", id="n", sessionId="t"),
        answer("4", "3", "D", id="n"),
    ]
    assert sorted(scored(read(rows))) == [
        (["a"], "A"),
        (["a", "A", "d"], "D"),
        (["b"], "B"),
        (["b", "B", "c"], "C"),
    ]


def test_subagents_are_conversations_of_their_own() -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", [tool_use("t")]),
        user("3", None, "find", isSidechain=True),
        answer("4", "3", "found", isSidechain=True),
        # Some versions link a subagent's first line to the call that started it.
        user("5", "2", "look", isSidechain=True),
        answer("6", "5", "seen", isSidechain=True),
        user("7", "2", [tool_result("t", "found")]),
        answer("8", "7", "b"),
    ]
    assert sorted(scored(read(rows))) == [
        (["a"], ""),
        (["a", "", "found"], "b"),
        (["find"], "found"),
        (["look"], "seen"),
    ]
    only_subagent = [user("1", None, "find", isSidechain=True), answer("2", "1", "found", isSidechain=True)]
    assert scored(read(only_subagent)) == [(["find"], "found")]


@pytest.mark.parametrize(
    ("more", "text", "in_history"),
    [
        ({"isApiErrorMessage": True, "model": "<synthetic>"}, "You've hit your session limit", False),
        ({}, "API Error: 529 overloaded_error", False),
        ({"model": "<synthetic>"}, "No response requested.", True),
        ({}, "(no content)", True),
        ({}, "[Request interrupted by user]", True),
    ],
)
def test_an_answer_that_claude_code_wrote_is_counted_and_not_scored(
    more: dict[str, Any], text: str, in_history: bool
) -> None:
    rows = [user("1", None, "a"), answer("2", "1", text, **more), user("3", "2", "b"), answer("4", "3", "c")]
    exchanges = read(rows)
    assert reasons(exchanges) == [TOOL_WROTE]
    assert scored(exchanges) == [(["a", text, "b"] if in_history else ["a", "b"], "c")]


def test_an_interruption_stays_in_the_prompt_and_the_cut_answer_has_a_warning() -> None:
    interruption = [{"type": "text", "text": "[Request interrupted by user]"}]
    rows = [user("1", None, "a"), answer("2", "1", "b"), user("3", "2", interruption), answer("4", "3", "c")]
    first, second = read(rows)
    assert (first.warnings, second.warnings) == ((sessions.INTERRUPTED,), ())
    assert scored([second]) == [(["a", "b", "[Request interrupted by user]"], "c")]


def test_what_claude_code_tells_the_model_stays_in_the_prompt() -> None:
    command = "<command-name>/cost</command-name>"
    rows = [
        user("1", None, "Caveat: the messages below were generated by the user.", isMeta=True),
        user("2", "1", command),
        line("system", "3", "2", subtype="local_command", content="<local-command-stdout>1 $</local-command-stdout>"),
        user("4", "3", "only shown", isVisibleInTranscriptOnly=True),
        line("attachment", "5", "4", attachment={"type": "queued_command", "prompt": "and b"}),
        line("attachment", "6", "5", attachment={"type": "file"}, rendered=[{"role": "user", "content": "a file"}]),
        user("7", "6", [tool_result("t", "[Old tool result content cleared]")]),
        answer("8", "7", "c"),
    ]
    ((prompt, _),) = scored(read(rows))
    assert prompt == [
        "Caveat: the messages below were generated by the user.",
        command,
        "<local-command-stdout>1 $</local-command-stdout>",
        "and b",
        "a file",
        "[Old tool result content cleared]",
    ]


@pytest.mark.parametrize(
    "thinking",
    [{"type": "thinking", "thinking": "", "signature": "abc"}, {"type": "redacted_thinking", "data": "abc"}],
)
def test_an_answer_without_its_thinking_has_a_warning(thinking: dict[str, Any]) -> None:
    blocks = [thinking, {"type": "text", "text": "b"}]
    usage = {"input_tokens": 9, "output_tokens": 1500}
    (exchange,) = read([user("1", None, "a"), answer("2", "1", blocks, usage=usage)])
    assert exchange.warnings == (HIDDEN_REASONING,)
    assert (exchange.output, exchange.usage.output) == ({"role": "assistant", "content": "b"}, 1500)


@pytest.mark.parametrize(
    ("edits", "left_out"),
    [
        ([{"type": "clear_tool_uses_1", "cleared_tool_uses": 3}], [EDITED]),
        ([{"type": "clear_thinking_1"}], []),
        ([], []),
    ],
)
def test_an_answer_of_whose_prompt_the_server_left_parts_out_is_counted(
    edits: list[dict[str, Any]], left_out: list[str]
) -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b", context_management={"applied_edits": edits}),
        user("3", "2", "c"),
        answer("4", "3", "d", context_management=None),
    ]
    exchanges = read(rows)
    assert reasons(exchanges) == left_out
    assert scored(exchanges)[-1] == (["a", "b", "c"], "d")


def attachment(uuid: str, parent: str, kind: str, **more: Any) -> dict[str, Any]:
    """A line that attaches a text to the prompt."""
    return line("attachment", uuid, parent, attachment={"type": kind, "content": ["x"]}, **more)


@pytest.mark.parametrize("kind", ["file", "hook_additional_context"])
def test_answers_after_an_attached_text_that_the_log_does_not_show_have_a_warning(kind: str) -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b"),
        user("3", "2", "c"),
        attachment("4", "3", kind),
        answer("5", "4", "d"),
        user("6", "5", "e"),
        answer("7", "6", "f"),
    ]
    exchanges = read(rows)
    assert [exchange.warnings for exchange in exchanges] == [(), (ATTACHED,), (ATTACHED,)]
    assert scored(exchanges)[-1] == (["a", "b", "c", "d", "e"], "f")


@pytest.mark.parametrize(
    ("kind", "more"), [("skill_listing", {}), ("file", {"rendered": [{"role": "user", "content": "x"}]})]
)
def test_answers_after_other_attachments_have_none(kind: str, more: dict[str, Any]) -> None:
    exchanges = read([user("1", None, "a"), attachment("2", "1", kind, **more), answer("3", "2", "b")])
    assert [exchange.warnings for exchange in exchanges] == [()]


def test_answers_after_an_image_are_counted_and_those_before_it_are_scored() -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", [tool_use("t1"), tool_use("t2")]),
        user("3", "2", [tool_result("t1", [IMAGE])]),
        user("4", "2", [tool_result("t2", "two")]),
        answer("5", "4", "c"),
        user("6", "5", "d"),
        answer("7", "6", "e"),
        # A branch without the image.
        user("8", None, "f"),
        answer("9", "8", "g"),
    ]
    exchanges = read(rows)
    assert scored(exchanges) == [(["a"], ""), (["f"], "g")]
    assert reasons(exchanges) == [sessions.MEDIA, sessions.MEDIA]
    assert reasons(read([user("1", None, [IMAGE, {"type": "text", "text": "a"}]), answer("2", "1", "b")])) == [
        sessions.MEDIA
    ]


def boundary(uuid: str, **more: Any) -> dict[str, Any]:
    """The line that marks a compaction."""
    return line("system", uuid, None, subtype="compact_boundary", logicalParentUuid="2", **more)


def test_a_compaction_starts_a_new_conversation_with_its_summary() -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b"),
        boundary("3"),
        user("4", "3", "They said a and b.", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        answer("5", "4", "c"),
    ]
    assert scored(read(rows)) == [(["a"], "b"), (["They said a and b."], "c")]
    # The result is the same without the boundary before the summary.
    del rows[2]
    rows[2]["parentUuid"] = "2"
    assert scored(read(rows)) == [(["a"], "b"), (["They said a and b."], "c")]
    # A summary of another kind is not in the prompt.
    assert scored(read([{"type": "summary", "summary": "x", "leafUuid": "5"}, *rows])) == scored(read(rows))


@pytest.mark.parametrize(("anchor", "after"), [("6", ["S", "c", "d", "e"]), ("5", ["c", "d", "S", "e"])])
def test_turns_that_a_compaction_keeps_are_in_the_next_prompt(anchor: str, after: list[str]) -> None:
    metadata = {"preservedSegment": {"headUuid": "3", "anchorUuid": anchor, "tailUuid": "4"}}
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b"),
        user("3", "2", "c"),
        answer("4", "3", "d"),
        boundary("5", compactMetadata=metadata),
        user("6", "5", "S", isCompactSummary=True),
        user("7", "6", "e"),
        answer("8", "7", "f"),
    ]
    assert scored(read(rows))[-1] == (after, "f")


def test_results_are_as_long_as_the_model_read_them() -> None:
    preview = {"kind": "tool-result", "toolUseId": "t1", "replacement": "<persisted-output>Preview"}
    rows = [
        user("1", None, "read"),
        answer("2", "1", [tool_use("t1"), tool_use("t2")]),
        user("3", "2", [tool_result("t1", "long " * 9)]),
        user("4", "2", [tool_result("t2", "two")]),
        {"type": "content-replacement", "sessionId": "s", "replacements": [preview]},
        answer("5", "4", "A"),
        line("system", "6", "5", subtype="microcompact_boundary", microcompactMetadata={"compactedToolIds": ["t2"]}),
        user("7", "6", "on"),
        answer("8", "7", "B"),
        # The branch before the results were cleared.
        user("9", "5", "back"),
        answer("10", "9", "C"),
    ]
    prompts = {text: prompt for prompt, text in scored(read(rows))}
    assert prompts["A"] == ["read", "", "<persisted-output>Preview", "two"]
    assert prompts["B"] == [*prompts["A"][:3], "[Old tool result content cleared]", "A", "on"]
    assert prompts["C"] == [*prompts["A"], "A", "back"]


def test_an_answer_whose_prompt_has_a_lost_line_is_counted() -> None:
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b"),
        user("3", "2", "lost"),
        answer("4", "3", "c"),
        user("5", "4", "d"),
        answer("6", "5", "e"),
        user("7", "2", "another branch"),
        answer("8", "7", "f"),
    ]
    exchanges = read(rows[:2] + rows[3:])
    assert scored(exchanges) == [(["a"], "b"), (["a", "b", "another branch"], "f")]
    assert reasons(exchanges) == [sessions.LOST, sessions.LOST]


def test_an_answer_whose_prompt_has_an_unreadable_line_is_counted() -> None:
    unreadable = {"type": "hologram"}
    rows = [
        user("1", None, "a"),
        answer("2", "1", "b"),
        user("3", "2", [unreadable]),
        answer("4", "3", "c"),
        answer("5", "1", [tool_use("t")], id="m"),
        answer("6", "5", [unreadable], id="m"),
        user("7", "6", [tool_result("t", "x")]),
        answer("8", "7", "d"),
    ]
    reader, exchanges, bad = ClaudeCode(), list[Exchange](), []
    for row in rows:
        try:
            exchanges.extend(reader.read(row))
        except ValueError:
            bad.append(row["uuid"])
    exchanges += reader.end()
    assert bad == ["3", "6"]
    assert scored(exchanges) == [(["a"], "b")]
    assert sorted(reasons(exchanges)) == [sessions.UNREADABLE] * 3


def test_lines_without_parents_follow_one_another() -> None:
    def bare(kind: str, content: Any, **more: Any) -> dict[str, Any]:
        row = line(kind, "", None, content, **more)
        return {key: value for key, value in row.items() if key not in ("parentUuid", "uuid")}

    rows = [
        bare("user", "a"),
        bare("assistant", "b", id="m"),
        bare("user", "z", isSidechain=True),
        bare("assistant", "y", id="o", isSidechain=True),
        bare("user", "c"),
        bare("assistant", "d", id="n"),
    ]
    assert sorted(scored(read(rows))) == [(["a"], "b"), (["a", "b", "c"], "d"), (["z"], "y")]
    reader = ClaudeCode()
    exchanges = [exchange for row in rows[:5] for exchange in reader.read(row)]
    reader.missed()
    exchanges += [*reader.read(rows[5]), *reader.end()]
    assert "d" not in [text for _, text in scored(exchanges)] and reasons(exchanges) == [sessions.UNREADABLE]


def test_a_session_that_is_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_HISTORY", 1000)
    reader = ClaudeCode()
    list(reader.read(user("0", None, "a")))
    with pytest.raises(ValueError, match="the session is longer than"):
        list(reader.read(user("1", "0", "b" * 1000)))
    later_rows = [answer("2", "1", "c"), user("3", None, "d"), answer("4", "3", "e")]
    exchanges = read(later_rows, reader)
    assert (scored(exchanges), reasons(exchanges)) == ([(["d"], "e")], [sessions.TOO_LONG])


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_HISTORY", 20_000)
    reader = ClaudeCode()
    num_turns_held, exchanges = [], []
    for number in range(500):
        exchanges += [
            *reader.read(user(f"u{number}", None, "a" * 50)),
            *reader.read(answer(f"a{number}", f"u{number}", "b")),
        ]
        num_turns_held.append(len(reader._links._turns))
    # One session with many abandoned branches.
    for number in range(500):
        parent = "a499" if number % 10 == 0 else f"y{number - 1}"
        exchanges += reader.read(user(f"x{number}", parent, "a" * 50))
        exchanges += reader.read(answer(f"y{number}", f"x{number}", "b"))
        num_turns_held.append(len(reader._links._turns))
    exchanges += reader.end()
    # At most twice MAX_HISTORY is kept, and a turn counts as 300 characters and its text.
    assert max(num_turns_held) < 150
    # All answers are scored but those of branches whose beginning was forgotten.
    assert len(exchanges) == 1000 and len(scored(exchanges)) >= 500
    assert set(reasons(exchanges)) <= {sessions.LOST}
