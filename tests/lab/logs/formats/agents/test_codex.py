"""Codex's rollouts: turns, rollbacks, forks, compactions, and what the model did not read or write.

A rollout is the log of one session, a line for each event. A rollback removes the last turns, a compaction replaces the
history by a summary, and a fork begins with a copy of its parent's lines.
"""

from __future__ import annotations

from typing import Any

import pytest

from specrace.lab.logs.formats import recognise
from specrace.lab.logs.formats.agents import sessions
from specrace.lab.logs.formats.agents.codex import CODEX_WROTE, Codex
from specrace.lab.logs.formats.apis.messages import HIDDEN_REASONING
from specrace.lab.logs.formats.base import Exchange, Format, Usage
from tests.lab.logs.formats.agents.test_claude_code import reasons, scored

Rows = list[dict[str, Any]]


def read(rows: Rows, reader: Format | None = None) -> list[Exchange]:
    """The exchanges of a whole rollout file."""
    reader = reader or Codex()
    return [exchange for row in rows for exchange in reader.read(row)] + list(reader.end())


def line(kind: str, **payload: Any) -> dict[str, Any]:
    """A line of a rollout."""
    return {"timestamp": "t", "type": kind, "payload": payload}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    """A line with something that the model read or wrote."""
    return line("response_item", type=kind, **fields)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """A line with an event that Codex reports."""
    return line("event_msg", type=kind, **fields)


def meta(name: str, text: str = "Be brief.", **fields: Any) -> dict[str, Any]:
    """The line that begins a session."""
    return line("session_meta", id=name, base_instructions={"text": text}, **fields)


def message(role: str, text: str, **fields: Any) -> dict[str, Any]:
    """A line with a message of this role."""
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}], **fields)


def user(text: str) -> dict[str, Any]:
    """A line with a user's message."""
    return message("user", text)


def answer(text: str) -> dict[str, Any]:
    """A line with an answer of the model."""
    return message("assistant", text)


def talk(texts: str) -> Rows:
    """The user's messages and the answers to them, in turn."""
    return [(answer if number % 2 else user)(text) for number, text in enumerate(texts.split())]


def call(identifier: str, name: str = "shell", arguments: str = '{"command": ["ls"]}') -> dict[str, Any]:
    """A line with a call of a tool."""
    return item("function_call", name=name, arguments=arguments, call_id=identifier)


def output(identifier: str, content: Any) -> dict[str, Any]:
    """A line with the result of a call."""
    return item("function_call_output", call_id=identifier, output=content)


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,x"}


def test_a_turn_joins_text_and_calls_and_ends_with_their_results() -> None:
    rows = [
        meta("s"),
        message("developer", "Be careful."),
        user("list"),
        item("reasoning", summary=[], content=[{"type": "reasoning_text", "text": "hm"}]),
        answer("I look."),
        call("c"),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="d"),
        output("c", "a.txt"),
        item("custom_tool_call_output", call_id="d", output={"content": "patched", "success": True}),
        answer("One file."),
    ]
    first, second = read(rows)
    assert [(sent["role"], sent["content"]) for sent in first.prompt] == [  # type: ignore[index, call-overload]
        ("system", "Be brief."),
        ("developer", "Be careful."),
        ("user", "list"),
    ]
    calls = [
        {"id": "c", "type": "function", "function": {"name": "shell", "arguments": {"command": ["ls"]}}},
        {"id": "d", "type": "function", "function": {"name": "apply_patch", "arguments": "*** Begin Patch"}},
    ]
    turn = {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": calls}
    assert first.output == turn and first.id == second.id == "s"
    results = [
        {"role": "tool", "content": "a.txt", "tool_call_id": "c"},
        {"role": "tool", "content": "patched", "tool_call_id": "d"},
    ]
    assert second.prompt == [*first.prompt, turn, *results]


def test_calls_of_all_kinds_are_in_the_answer_and_their_results_in_the_next_prompt() -> None:
    rows = [
        user("a"),
        item("local_shell_call", call_id="c", status="completed", action={"type": "exec", "command": ["ls"]}),
        output("c", [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": " two"}]),
        item("web_search_call", status="completed", action={"type": "search", "query": "q"}),
        answer("b"),
    ]
    first, second = read(rows)
    (shell_call,) = first.output["tool_calls"]  # type: ignore[index, call-overload]
    assert shell_call["function"] == {"name": "local_shell", "arguments": {"type": "exec", "command": ["ls"]}}
    assert scored([second]) == [(["a", "", "one two"], "b")]
    (search_call,) = second.output["tool_calls"]  # type: ignore[index, call-overload]
    assert search_call["function"]["arguments"]["query"] == "q"
    assert (first.warnings, second.warnings) == ((), (sessions.HIDDEN_RESULTS,))


@pytest.mark.parametrize("hidden", [{"encrypted_content": "x", "summary": []}, {"summary": [{"type": "summary_text"}]}])
def test_an_answer_without_its_reasoning_has_a_warning(hidden: dict[str, Any]) -> None:
    first, second = read([user("a"), item("reasoning", **hidden), answer("b"), user("c"), answer("d")])
    assert (first.warnings, second.warnings) == ((HIDDEN_REASONING,), ())
    assert first.output == {"role": "assistant", "content": "b"}


def test_a_rollback_removes_the_users_last_turns_and_what_codex_put_before_them() -> None:
    rows = [
        meta("s"),
        user("<environment_context>1</environment_context>"),
        *talk("a A <environment_context>2</environment_context>"),
        user("b"),
        call("c"),
        output("c", "out"),
        answer("B"),
        *talk("c C"),
        event("thread_rolled_back", num_turns=2),
        *talk("d D"),
        event("thread_rolled_back", num_turns=9),
        *talk("e E"),
    ]
    context = ["Be brief.", "<environment_context>1</environment_context>"]
    prompts = {text: prompt for prompt, text in scored(read(rows))}
    assert prompts["D"] == [*context, "a", "A", "d"]
    assert prompts["E"] == [*context, "e"]
    # A message that was rolled back follows what was in the history when it was written.
    assert prompts["C"][-4:] == ["", "out", "B", "c"]


def test_a_rollback_by_line_removes_the_lines_after_it() -> None:
    rows = [
        meta("s"),
        *talk("a A b B"),
        # Lines are counted from 1, so line 3 is "A".
        event("thread_rolled_back", num_turns=1, rollback_start_index=3),
        *talk("c C"),
    ]
    assert scored(read(rows))[-1] == (["Be brief.", "a", "A", "c"], "C")


@pytest.mark.parametrize("rollback", [{"num_turns": 2}, {"num_turns": 1, "rollback_start_index": 3}])
def test_a_rollback_beyond_a_compaction_brings_the_earlier_history_back(rollback: dict[str, Any]) -> None:
    rows = [
        meta("s"),
        *talk("a A b"),
        line("compacted", message="S", replacement_history=[user("S")["payload"]]),
        answer("B"),
        *talk("c C"),
        event("thread_rolled_back", **rollback),
        *talk("d D"),
    ]
    prompts = {text: prompt for prompt, text in scored(read(rows))}
    assert prompts["C"] == ["Be brief.", "S", "B", "c"]
    assert prompts["D"] == ["Be brief.", "a", "A", "d"]


def test_a_compaction_with_a_replacement_is_the_whole_history() -> None:
    replacement = [
        message("developer", "D")["payload"],
        user("b")["payload"],
        answer("B")["payload"],
        call("c")["payload"],
        output("c", "out")["payload"],
        user("S")["payload"],
    ]
    rows = [meta("s"), *talk("a A"), line("compacted", message="", replacement_history=replacement), *talk("d E")]
    last = read(rows)[-1]
    assert [(sent["role"], sent["content"]) for sent in last.prompt] == [  # type: ignore[index, call-overload]
        ("system", "Be brief."),
        ("developer", "D"),
        ("user", "b"),
        ("assistant", "B"),
        ("tool", "out"),
        ("user", "S"),
        ("user", "d"),
    ]


def test_a_compaction_without_a_replacement_keeps_the_users_messages_and_the_summary() -> None:
    rows = [
        meta("s"),
        user("<environment_context>1</environment_context>"),
        *talk("a A"),
        line("compacted", message="S"),
        *talk("b B"),
        line("compacted", message="T"),
        *talk("c C"),
    ]
    assert [prompt for prompt, _ in scored(read(rows))[1:]] == [
        ["Be brief.", "a", "S", "b"],
        ["Be brief.", "a", "b", "T", "c"],
    ]


def test_answers_after_an_encrypted_summary_are_counted() -> None:
    replacement = [user("a")["payload"], {"type": "compaction", "encrypted_content": "x"}]
    rows = [*talk("a A"), line("compacted", message="", replacement_history=replacement), *talk("b B")]
    exchanges = read(rows)
    assert scored(exchanges) == [(["a"], "A")]
    assert reasons(exchanges) == [sessions.ENCRYPTED]


def test_a_forks_copies_have_the_keys_of_its_parents_answers() -> None:
    turns = talk("a A b B")
    parent = read([meta("b"), *turns])
    fork = read([meta("a", "Other words.", forked_from_id="b"), meta("b"), *turns, user("c"), answer("C")])
    assert [exchange.key for exchange in fork[:2]] == [exchange.key for exchange in parent]
    assert {exchange.id for exchange in fork} == {"a"} and scored(fork)[0][0] == ["Other words.", "a"]
    forks_fork = read(
        [meta("d", forked_from_id="a"), meta("a", forked_from_id="b"), meta("b"), *turns, user("c"), answer("C")]
    )
    assert [exchange.key for exchange in forks_fork] == [exchange.key for exchange in fork]
    # Another session's equal answer to the same question is an answer of its own.
    assert read([meta("c"), *turns])[0].key != parent[0].key
    # Older versions copy a resumed session without naming it; the ids of the calls show that answers are the same.
    tools = [user("a"), call("c1"), output("c1", "x"), answer("A")]
    assert [exchange.key for exchange in read([meta("e"), *tools])] == [
        exchange.key for exchange in read([meta("f"), *tools])
    ]


def test_a_fork_without_its_parents_lines_is_left_out() -> None:
    base = {"thread_id": "b", "end_ordinal_exclusive": 9, "end_byte_offset": 100}
    exchanges = read([meta("a", forked_from_id="b", history_base=base), user("c"), answer("C")])
    assert (scored(exchanges), reasons(exchanges)) == ([], [sessions.LOST])


def test_a_session_meta_of_another_session_starts_a_new_conversation() -> None:
    rows = [meta("a"), user("a"), answer("A"), meta("a"), user("b"), answer("B"), meta("c"), user("c"), answer("C")]
    assert [prompt for prompt, _ in scored(read(rows))] == [
        ["Be brief.", "a"],
        ["Be brief.", "a", "A", "b"],
        ["Be brief.", "c"],
    ]


def test_a_rollout_without_envelopes_is_read() -> None:
    rows: Rows = [
        {"id": "s", "timestamp": "t", "instructions": None, "git": {}},
        {"record_type": "state"},
        user("a")["payload"],
        {"record_type": "state"},
        call("c")["payload"],
        output("c", '{"output": "x"}')["payload"],
        answer("A")["payload"],
    ]
    assert recognise(rows[0]) is recognise(rows[1]) is recognise(rows[2]) is Codex
    exchanges = read(rows)
    assert scored(exchanges) == [(["a"], ""), (["a", "", '{"output": "x"}'], "A")]
    assert {exchange.id for exchange in exchanges} == {"s"}


def test_the_users_instructions_are_read_once() -> None:
    first = line("session_meta", id="s", instructions="Use tabs.")
    instructions = user("<user_instructions>\n\nUse tabs.\n\n</user_instructions>")
    assert scored(read([first, instructions, user("a"), answer("A")])) == [
        ([instructions["payload"]["content"][0]["text"], "a"], "A")
    ]
    assert scored(read([first, *talk("a A")])) == [(["Use tabs.", "a"], "A")]


def test_what_the_model_wrote_to_a_custom_tool_stays_text() -> None:
    rows = [user("a"), item("custom_tool_call", name="calculate", input="[1, 2]", call_id="c")]
    (exchange,) = read(rows)
    assert exchange.output["tool_calls"][0]["function"]["arguments"] == "[1, 2]"  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("told", "identifier"),
    [
        ("<user_action>\n  <context>User initiated a review task. Here it is.</context>\n</user_action>", {}),
        ("Look at the review.", {"id": "review_rollout_assistant"}),
    ],
)
def test_a_review_that_codex_wrote_stays_in_the_prompt_and_is_not_scored(told: str, identifier: dict[str, Any]) -> None:
    rows = [meta("s"), *talk("a b"), user(told), message("assistant", "All good.", **identifier), *talk("c d")]
    exchanges = read(rows)
    asked = ["Be brief.", "a"]
    assert scored(exchanges) == [(asked, "b"), ([*asked, "b", told, "All good.", "c"], "d")]
    assert reasons(exchanges) == [CODEX_WROTE]


def test_an_answer_with_reasoning_after_a_review_is_the_models() -> None:
    told = user("<user_action>a review task</user_action>")
    thought = item("reasoning", summary=[], content=[{"type": "reasoning_text", "text": "hm"}])
    assert [text for _, text in scored(read([user("a"), told, thought, answer("b")]))] == ["b"]


def usage(total: int, last: int) -> dict[str, Any]:
    """A count of tokens: the session's total, and `last` output tokens of the last answer."""
    counts = {"input_tokens": 10 * last, "output_tokens": last, "reasoning_output_tokens": 1}
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": counts}
    return event("token_count", info=info, rate_limits={})


def test_a_usage_belongs_to_the_answer_beside_it() -> None:
    answers = [[call("c")], [answer("A")]]
    after = [user("a"), *answers[0], usage(9, 2), output("c", "x"), usage(9, 2), *answers[1], usage(20, 3)]
    before = [user("a"), usage(9, 2), *answers[0], output("c", "x"), usage(20, 3), *answers[1]]
    for rows in (after, before):
        assert [exchange.usage for exchange in read(rows)] == [Usage(20, 2, 1), Usage(30, 3, 1)]
    newest = [user("a"), answer("A"), line("token_usage_record", response_id="r", usage={"output_tokens": 4})]
    assert read(newest)[0].usage == Usage(output=4)
    assert read([user("a"), answer("A"), event("token_count", info=None)])[0].usage == Usage()


def test_an_aborted_answer_has_a_warning() -> None:
    rows = [user("a"), answer("A"), event("turn_aborted", reason="interrupted"), user("b"), answer("B")]
    first, second = read(rows)
    assert (first.warnings, second.warnings) == ((sessions.INTERRUPTED,), ())


def test_answers_after_an_image_are_counted_and_those_before_it_are_scored() -> None:
    rows = [
        user("a"),
        call("c", "view_image"),
        output("c", [IMAGE]),
        answer("b"),
        *talk("d e"),
        line("compacted", message="", replacement_history=[user("S")["payload"]]),
        answer("f"),
        item("image_generation_call", status="completed", result="x"),
    ]
    exchanges = read(rows)
    assert scored(exchanges) == [(["a"], "")]
    assert reasons(exchanges) == [sessions.MEDIA, sessions.MEDIA, sessions.OWN_MEDIA]
    assert reasons(read([item("message", role="user", content=[IMAGE]), answer("b")])) == [sessions.MEDIA]


def test_what_a_tools_result_says_of_its_own_length_stays() -> None:
    truncated = "Total output lines: 900\n\n1\n…12 tokens truncated…\n900"
    assert scored(read([user("a"), call("c"), output("c", truncated), answer("A")]))[1] == (["a", "", truncated], "A")


def test_answers_after_an_unreadable_line_are_counted() -> None:
    rows = [
        *talk("a b"),
        item("function_call", name=7, arguments="{}"),
        *talk("c d"),
        line("compacted", message="", replacement_history=[user("S")["payload"]]),
        answer("e"),
        item("message", role="user", content=[{"type": "hologram"}]),
        answer("f"),
        *talk("g h"),
    ]
    reader, exchanges, bad = Codex(), list[Exchange](), []
    for number, row in enumerate(rows):
        try:
            exchanges.extend(reader.read(row))
        except ValueError:
            bad.append(number)
    exchanges += reader.end()
    assert bad == [2, 7]
    assert scored(exchanges) == [(["S"], "e")]
    assert reasons(exchanges) == [sessions.UNREADABLE] * 4


def test_answers_after_a_line_that_is_not_json_are_left_out() -> None:
    reader = Codex()
    exchanges = [exchange for row in (meta("s"), user("a"), answer("A"), user("b")) for exchange in reader.read(row)]
    reader.missed()
    exchanges += [exchange for row in (answer("B"), meta("t"), user("c"), answer("C")) for exchange in reader.read(row)]
    exchanges += reader.end()
    assert [text for _, text in scored(exchanges)] == ["A", "C"]
    assert reasons(exchanges) == [sessions.UNREADABLE]


def test_a_session_that_is_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_HISTORY", 300)
    reader = Codex()
    with pytest.raises(ValueError, match="the session is longer than"):
        read([meta("s"), *(user("a" * 50) for _ in range(9))], reader)
    exchanges = read([user("b"), answer("B"), meta("t"), user("c"), answer("C")], reader)
    assert scored(exchanges) == [(["Be brief.", "c"], "C")]
    assert reasons(exchanges) == [sessions.TOO_LONG]
