"""Chat templates of many kinds: transformers renders them alike, and the loss of a message never goes unreported."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.chat import answer as chat_answer
from specrace.model.chat import template as chat_template
from specrace.model.chat import tokenizer as chat_tokenizer
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer
from tests.lab.logs.formats.written import TEMPLATE, chat_folder
from tests.measure import templates as measure

Message = dict[str, Any]
ANSWER = {"role": "assistant", "content": "The moon pulls the sea."}
USER = {"role": "user", "content": "What pulls the sea?"}
SYSTEM = {"role": "system", "content": "Answer in one\n line."}
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "Tides.", "parameters": {}}}]
DOCUMENTS = [{"title": "Almanac", "text": "Tides rise twice a day."}]
# Every message with its calls, as most templates write them.
TURNS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}<|end|>"
    "{% endfor %}"
)
# The beginning of the turn that the model is to write.
BEGIN = "{% if add_generation_prompt %}<assistant>{% endif %}"


def call(identifier: str | None = "call_1", **arguments: Any) -> Message:
    function = {"name": "look_up", "arguments": arguments or {"word": "tide"}}
    without_id = {"type": "function", "function": function}
    return without_id | {"id": identifier} if identifier else without_id


def assistant_calling(*calls: Message, **fields: Any) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)} | fields


def tool_result(content: str = "high at six", identifier: str = "call_1") -> Message:
    return {"role": "tool", "content": content, "tool_call_id": identifier}


def tokenizer(folder: Path, template: str = TURNS + BEGIN, **config: Any) -> ChatTokenizer:
    saved = chat_folder(folder / "chat", template)
    file = saved / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return load_tokenizer(saved)


def texts(
    tokenizer: ChatTokenizer, messages: list[Message], answer: Message = ANSWER, tools: Any = None, **fields: Any
) -> tuple[str, str, tuple[str, ...]]:
    """The rendered prompt and the model's turn as text, special tokens left out, and the warnings."""
    prompt, output, warnings = tokenizer.chat(messages, answer, tools, **fields)
    return tokenizer.decode(list(prompt)), tokenizer.decode(list(output)), warnings


@pytest.mark.parametrize(
    "template",
    [
        "{{ bos_token }}" + TURNS + "{{ eos_token }}" + BEGIN,
        "{{ {'b': 1, 'a': ['é']} | tojson(indent=2, sort_keys=true) }}" + TURNS + BEGIN,
        "{{ {'a': [1, 'é']} | tojson(separators=(',', ':'), ensure_ascii=true) }}" + TURNS + BEGIN,
        "{% for m in messages %}{{ m.role }}{% generation %} {{ m.content }}<|end|>{% endgeneration %}{% endfor %}",
        TURNS + "{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}" + BEGIN,
        "{% set ns = namespace(seen=0) %}{% for m in messages %}{% set ns.seen = ns.seen + 1 %}{{ ns.seen }}"
        "{{ m.content }}{% endfor %}" + BEGIN,
        "{{ tools is none }} {{ documents is none }} {{ documents is defined }}" + TURNS + BEGIN,
        "  {%- set x = 1 %}\n    {% if x %}\n  indented\n    {% endif %}\n" + TURNS + BEGIN,
    ],
)
def test_a_template_is_rendered_as_transformers_renders_it(tmp_path: Path, template: str) -> None:
    from transformers import AutoTokenizer

    # Older configs give a special token as an object.
    prompt, _, _ = tokenizer(tmp_path, template, bos_token={"content": "<|q|>"}).chat([SYSTEM, USER], ANSWER, None)
    tokenizer(tmp_path, template, bos_token="<|q|>")
    reference = AutoTokenizer.from_pretrained(tmp_path / "chat", local_files_only=True)
    rendered = reference.apply_chat_template([SYSTEM, USER], add_generation_prompt=True, return_dict=False)
    assert list(prompt) == rendered


def test_a_template_that_reads_the_date_gets_a_fixed_one_and_a_warning(tmp_path: Path) -> None:
    dated = "Today: {{ strftime_now('%d %b %Y') }} " + TURNS + BEGIN
    prompt, _, warnings = texts(tokenizer(tmp_path, dated), [USER])
    assert prompt.startswith("Today: 26 Jul 2024 ") and warnings == (chat_template.DATED,)
    # A template that knows the date but does not show it gets no warning.
    guarded = "{% if messages | length > 9 and strftime_now is defined %}{{ strftime_now('%Y') }}{% endif %}"
    assert texts(tokenizer(tmp_path, guarded + TURNS + BEGIN), [USER])[2] == ()


def test_templates_by_name_are_chosen_for_tools_and_documents(tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "plain " + TURNS + BEGIN},
        {"name": "tool_use", "template": "tools {{ tools | tojson }}" + TURNS + BEGIN},
        {
            "name": "rag",
            "template": "rag {% for d in documents %}{{ d.title }} {{ d.text }}{% endfor %}" + TURNS + BEGIN,
        },
    ]
    folder = chat_folder(tmp_path / "chat")
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    listed = load_tokenizer(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for entry in named:
        default = entry["name"] == "default"
        place = "chat_template.jinja" if default else f"additional_chat_templates/{entry['name']}.jinja"
        (folder / place).write_text(entry["template"])
    for loaded in (listed, load_tokenizer(folder)):
        assert texts(loaded, [USER])[0].startswith("plain ")
        assert texts(loaded, [USER], tools=TOOLS)[0].startswith("tools ")
        assert texts(loaded, [USER], documents=DOCUMENTS)[0].startswith("rag ")


@pytest.mark.parametrize(
    # A condition under which the template shows a message, and what is lost.
    ("condition", "messages", "lost"),
    [
        ("m.role == 'user'", [SYSTEM, USER], "the system message"),
        ("loop.last", [USER, ANSWER, USER | {"content": "Why?"}], "an earlier message"),
        ("loop.index > 1", [USER, ANSWER, USER], "an earlier message"),
        ("m.role != 'tool'", [USER, assistant_calling(call()), tool_result()], "a tool's result"),
        ("m.role == 'system'", [SYSTEM, USER], "the last message"),
    ],
)
def test_a_template_that_loses_a_message_is_refused_by_name(
    tmp_path: Path, condition: str, messages: list[Message], lost: str
) -> None:
    template = TURNS.replace("<{{ m.role }}>", "{% if " + condition + " %}").replace(
        "{% endfor %}<|end|>", "{% endfor %}{% endif %}"
    )
    with pytest.raises(ValueError, match=f"^the chat template of chat does not show {lost}$"):
        tokenizer(tmp_path, template + BEGIN).chat(messages, ANSWER, None)


def test_a_lost_message_is_noticed_even_if_its_text_stands_elsewhere(tmp_path: Path) -> None:
    template = TURNS.replace("{{ m.content }}", "{{ m.content if m.role != 'system' }}") + BEGIN
    short_message = {"role": "system", "content": "sea"}
    assert "sea" in USER["content"]
    with pytest.raises(ValueError, match="does not show the system message"):
        tokenizer(tmp_path, template).chat([short_message, USER], ANSWER, None)
    assert tokenizer(tmp_path).chat([short_message, USER], ANSWER, None)[2] == ()


def test_lost_tools_documents_and_calls_are_refused(tmp_path: Path) -> None:
    loaded = tokenizer(tmp_path)
    with pytest.raises(ValueError, match="does not show the tools"):
        loaded.chat([USER], ANSWER, TOOLS)
    with pytest.raises(ValueError, match="does not show the documents"):
        loaded.chat([USER], ANSWER, None, DOCUMENTS)
    first_call_only = TURNS.replace("m.tool_calls or []", "(m.tool_calls or [])[:1]") + BEGIN
    calls = assistant_calling(call(word="tide"), call("call_2", word="ebb"))
    with pytest.raises(ValueError, match="does not show an earlier tool call"):
        tokenizer(tmp_path, first_call_only).chat([USER, calls, tool_result()], ANSWER, None)
    with pytest.raises(ValueError, match="does not show the answer's tool call"):
        tokenizer(tmp_path, first_call_only).chat([USER], calls, None)


@pytest.mark.parametrize(
    "content", ["{{ m.content | trim }}", "{{ m.content | tojson }}", "{{ m.content | e }}", "{{ [m.content] }}"]
)
def test_texts_that_a_template_trims_or_escapes_are_not_lost(tmp_path: Path, content: str) -> None:
    template = TURNS.replace("{{ m.content }}", content) + BEGIN
    quoted = {"role": "user", "content": '  Say "é" & <b>\n\n  twice.\n'}
    assert tokenizer(tmp_path, template).chat([SYSTEM, quoted], ANSWER, None)[2] == ()


def test_reasoning_of_earlier_turns_and_flags_may_be_left_out(tmp_path: Path) -> None:
    template = (
        TURNS.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1].replace('/no_think', '') }}") + BEGIN
    )
    earlier = {"role": "assistant", "content": "<think>Hm.</think>The wind.", "reasoning_content": "Hm."}
    flagged = {"role": "user", "content": "And the sea? /no_think"}
    assert tokenizer(tmp_path, template).chat([USER, earlier, flagged], ANSWER, None)[2] == ()


# An answer with reasoning, and what templates do about reasoning. In expected outputs, {r} stands for the reasoning and
# {c} for the content.
REASONED = ANSWER | {"reasoning_content": "Tides follow the moon."}
THINK = "{% if m.content == 'x' %}<think></think>{% endif %}"
OPENS = "{% if add_generation_prompt %}<assistant><think>\n{% endif %}"
SHOWS = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
GATED = "{% if add_generation_prompt %}<assistant>{{ '<think>' if thinking else '</think>' }}{% endif %}"


@pytest.mark.parametrize(
    ("template", "output", "warnings"),
    [
        # The template shows reasoning.
        (TURNS.replace("{{ m.content }}", SHOWS + "{{ m.content }}") + BEGIN, "<think>{r}</think>{c}", []),
        # The prompt opens the block, and the template knows no reasoning.
        (TURNS + OPENS, "{r}\n</think>\n\n{c}", [chat_answer.NO_REASONING_SHOWN]),
        # The template has marks, but does not use them for this message.
        (
            TURNS.replace("{{ m", THINK + "{{ m", 1) + BEGIN,
            "<think>\n{r}\n</think>\n\n{c}",
            [chat_answer.NO_REASONING_SHOWN],
        ),
        # The template has no marks of reasoning.
        (TURNS + BEGIN, "{r}\n\n{c}", [chat_answer.NO_REASONING_SHOWN]),
        # An empty block is filled.
        (
            TURNS.replace(
                "{{ m.content }}", "{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}"
            )
            + BEGIN,
            "<think>\n{r}\n</think>\n\n{c}",
            [chat_answer.NO_REASONING_SHOWN],
        ),
        # The prompt closes the block unless thinking is on.
        (TURNS + GATED, "{r}\n</think>\n\n{c}", [chat_answer.NO_REASONING_SHOWN, chat_tokenizer.THINKING_ON]),
        # The template has other marks, here in a comment.
        (TURNS + "{# [THINK] #}" + BEGIN, "[THINK]{r}[/THINK]{c}", [chat_answer.NO_REASONING_SHOWN]),
    ],
)
def test_reasoning_is_scored_before_the_answer(tmp_path: Path, template: str, output: str, warnings: list[str]) -> None:
    loaded = tokenizer(tmp_path, template)
    for content in (ANSWER["content"], ""):
        answer = REASONED | {"content": content}
        expected = output.format(r="Tides follow the moon.", c=content)
        assert texts(loaded, [USER], answer)[1:] == (expected, tuple(warnings))
        assert len(loaded.chat([USER], answer, None)[1]) > 5
    # A server without a parser for reasoning logs the reasoning as part of the text.
    inline = ANSWER | {"content": f"<think>\nTides follow the moon.\n</think>\n\n{ANSWER['content']}"}
    if "<think>" in template:
        inline_output = texts(loaded, [USER], inline)[1]
        assert inline_output.count("Tides follow the moon.") == 1 and inline_output.count("</think>") == 1
        assert inline_output.count("<think>") == output.count("<think>")


def test_a_warning_is_given_if_the_prompt_opens_a_block_and_no_reasoning_was_logged(tmp_path: Path) -> None:
    _, output, warnings = texts(tokenizer(tmp_path, TURNS + OPENS), [USER])
    assert (output, warnings) == (ANSWER["content"], (chat_answer.NO_REASONING_LOGGED,))


def test_the_template_gets_the_requests_own_arguments(tmp_path: Path) -> None:
    loaded = tokenizer(tmp_path, TURNS + "{{ effort }}" + GATED)
    nested = {"chat_template_kwargs": {"thinking": True, "messages": []}, "effort": "low", "tools": [1]}
    assert texts(loaded, [USER], REASONED, options=nested)[0].endswith("low<assistant><think>")
    assert texts(loaded, [USER], REASONED, options={"thinking": False})[0].endswith("<assistant></think>")
    assert texts(loaded, [USER], options={"chat_template": "x"})[2] == (chat_template.OWN_TEMPLATE,)


@pytest.mark.parametrize("arguments_shown", ["{{ c.function.arguments }}", "{{ '' + c.function.arguments }}"])
def test_arguments_are_written_as_json_for_templates_that_print_them(tmp_path: Path, arguments_shown: str) -> None:
    template = TURNS.replace("{{ c.function.arguments | tojson }}", arguments_shown) + BEGIN
    loaded = tokenizer(tmp_path, template)
    prompt, output, _ = texts(
        loaded, [USER, assistant_calling(call()), tool_result()], assistant_calling(call(n=3, deep={"a": [True]}))
    )
    assert '[look_up {"word": "tide"}]' in prompt and '{"n": 3, "deep": {"a": [true]}}' in output
    # Arguments that are not JSON stay as the model wrote them.
    broken = call() | {"function": {"name": "look_up", "arguments": '{"word": '}}
    assert '[look_up {"word": ]' in texts(loaded, [USER], assistant_calling(broken))[1]


def test_tool_call_ids_are_kept_or_given_the_form_that_a_template_demands(tmp_path: Path) -> None:
    shown = TURNS.replace("[{{ c", "[{{ c.id }} {{ c").replace("<{{ m.role }}>", "<{{ m.role }} {{ m.tool_call_id }}>")
    conversation = [USER, assistant_calling(call("call_abc")), tool_result(identifier="call_abc")]
    prompt, _, warnings = texts(tokenizer(tmp_path, shown + BEGIN), conversation)
    assert prompt.count("call_abc") == 2 and warnings == ()
    nine_characters = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id is undefined or c.id | length != 9 %}"
        "{{ raise_exception('nine') }}{% endif %}{% endfor %}{% endfor %}"
    )
    prompt, _, warnings = texts(tokenizer(tmp_path, nine_characters + shown + BEGIN), conversation)
    (identifier,) = {part.split()[0] for part in prompt.split("[")[1:]}
    assert len(identifier) == 9 and identifier.isalnum() and f"<tool {identifier}>" in prompt
    assert warnings == (chat_template.OTHER_IDS,)
    assert texts(tokenizer(tmp_path, nine_characters + shown + BEGIN), [USER], assistant_calling(call(None)))[2] == (
        chat_template.OTHER_IDS,
    )
    # Kimi's templates show a function's name in the call's id only.
    only_id = TURNS.replace("[{{ c.function.name }}", "[{{ c.id }}") + BEGIN
    _, output, warnings = texts(tokenizer(tmp_path, only_id), [USER], assistant_calling(call()))
    assert output == '[functions.look_up:0 {"word": "tide"}]' and warnings == (chat_template.OTHER_IDS,)


def test_content_is_given_in_parts_to_templates_that_read_parts(tmp_path: Path) -> None:
    parts = "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
    loaded = tokenizer(tmp_path, TURNS.replace("{{ m.content }}", parts) + BEGIN)
    prompt, output, warnings = texts(loaded, [SYSTEM, USER])
    assert USER["content"] in prompt and output == ANSWER["content"] and warnings == ()


def test_a_developer_message_becomes_a_system_message_where_the_role_is_unknown(tmp_path: Path) -> None:
    developer = SYSTEM | {"role": "developer"}
    prompt, _, warnings = texts(tokenizer(tmp_path), [developer, USER])
    assert prompt.startswith("<system>") and warnings == (chat_template.NO_DEVELOPER,)
    knows_developer = "{% if messages[0].role == 'developer' %}{% endif %}" + TURNS + BEGIN
    prompt, _, warnings = texts(tokenizer(tmp_path, knows_developer), [developer, USER])
    assert prompt.startswith("<developer>") and warnings == ()


def test_a_warning_is_given_if_the_template_drops_text_beside_a_call(tmp_path: Path) -> None:
    template = TURNS.replace("{{ m.content }}", "{{ m.content if not m.tool_calls }}") + BEGIN
    loaded = tokenizer(tmp_path, template)
    calling = assistant_calling(call(), content="I look it up.")
    _, output, warnings = texts(loaded, [USER], calling)
    assert output == 'I look it up.[look_up {"word": "tide"}]' and warnings == (chat_answer.TEXT_DROPPED,)
    assert texts(loaded, [USER, calling, tool_result()])[2] == (chat_template.TEXT_DROPPED,)


def test_documents_are_given_by_the_names_that_the_template_knows(tmp_path: Path) -> None:
    by_names = "{% for d in documents %}{{ d.doc_id }}: {{ d.text }}{% endfor %}" + TURNS + BEGIN
    loaded = tokenizer(tmp_path, by_names)
    cohere = [{"id": "a", "data": {"snippet": "Tides rise twice a day."}}]
    for documents, shown in (
        (DOCUMENTS, "Almanac: Tides rise"),
        (cohere, "a: Tides rise"),
        (["Tides rise"], "Tides rise"),
    ):
        prompt, _, warnings = texts(loaded, [USER], documents=documents)
        assert shown in prompt
        assert warnings == (() if isinstance(documents[0], str) else (chat_template.RENAMED_DOCUMENTS,))
    # Without documents in the request, the template's loop has nothing to show.
    assert USER["content"] in texts(loaded, [USER])[0]


def test_the_prompt_begins_with_one_beginning_token(tmp_path: Path) -> None:
    config = {"add_bos_token": True, "bos_token": "<|q|>"}
    for fields in ({}, config):
        loaded = tokenizer(tmp_path, "{{ bos_token }}" + TURNS + BEGIN, **({"bos_token": "<|q|>"} | fields))
        prompt = list(loaded.chat([USER], ANSWER, None)[0])
        (beginning,) = load_tokenizer(BUNDLED_MODEL)("<|q|>")
        assert prompt[0] == beginning and prompt.count(beginning) == 1


def test_the_output_ends_at_the_first_end_token_after_what_the_model_wrote(tmp_path: Path) -> None:
    loaded = tokenizer(tmp_path, TURNS + "next turn<|end|>" + BEGIN)
    (end,) = loaded("<|end|>")
    output = list(loaded.chat([USER], ANSWER, None)[1])
    assert output[-1] == end and output.count(end) == 1
    # Models may stop at more tokens than their tokenizer's end token.
    folder = tmp_path / "chat"
    (other,) = loaded("<|x|>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, other]}))
    (folder / "chat_template.jinja").write_text(TURNS.replace("<|end|>", "<|x|>\n") + BEGIN)
    assert list(load_tokenizer(folder).chat([USER], ANSWER, None)[1])[-1] == other


def test_the_bundled_template_is_refused_for_conversations() -> None:
    bundled = load_tokenizer(BUNDLED_MODEL)
    assert bundled.chat([USER], ANSWER, None)[2] == ()
    for messages in ([SYSTEM, USER], [USER, ANSWER, USER], [SYSTEM]):
        with pytest.raises(ValueError, match="the bundled model's template shows the last message only; name the"):
            bundled.chat(messages, ANSWER, None)


def test_the_table_of_templates_finds_no_silent_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, source in (
        ("turns", TURNS + BEGIN),
        ("written", TEMPLATE),
        ("last", "{{ messages[-1].content }}"),
    ):
        (tmp_path / f"{name}.jinja").write_text(source)
    monkeypatch.setattr(sys, "argv", ["templates", str(tmp_path)])
    assert measure.main() == 0
    table = capsys.readouterr().out
    # "=" is a prompt that equals Jinja's.
    assert "turns                                                                 =          =          =" in table
    assert "3 templates, 21 requests" in table and "does not show an earlier message" in table


def test_the_table_shows_a_prompt_that_differs_from_jinjas(tmp_path: Path) -> None:
    log = measure.LOGS["plain"]
    loaded = tokenizer(tmp_path)
    assert measure.judge(loaded, TURNS + BEGIN, log) == ("=", ())
    assert measure.judge(loaded, "other" + TURNS + BEGIN, log)[0] == "!"
