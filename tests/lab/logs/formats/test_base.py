"""The checks that all formats share."""

from __future__ import annotations

import pytest

from specrace.lab.logs.formats.base import read_text


@pytest.mark.parametrize(
    "text",
    [
        '[{"role": "system", "parts": [{"type": "te',
        '"[{\\"role\\": \\"user\\", \\"content\\": \\"Wh',
        "[{'message.role': 'user', 'message.content': 'a'}]",
        "array([{'role': 'user', 'content': 'a'}], dtype=object)",
        '[{"message": {"role": "user", "conte',
        '{"model": "m", "messages": [{"role": "user", "content": "a',
        '{"id": "c-1", "object": "chat.completion", "choi',
        '{"created": 1, "choices": [{"index": 0, "mess',
        '{"id": "m", "type": "message", "role": "assistant", "cont',
        '[{"type": "text", "text": "Wh',
        '[\n  {\n    "role": "user",\n    "conte',
    ],
)
def test_messages_and_bodies_that_are_cut_off_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"the output begins like messages, .* but is not JSON: it was cut off"):
        read_text(text, "the output")


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": "the b',
        '[{"name": "Ann", "role": "user", "age": 3',
        '{"question": "q", "choices": [{"text": "b',
        '{"role": "user", "content": "a"}',
        '{"role": "user", "content": "a"}\nContinue.',
        '"role": "user", "content": "a',
        "array([{'x': 1}, {'x': 2}])",
        "array([1, 2])",
        '{"role": "user", "content": ' + "9" * 5000 + "}",
    ],
)
def test_a_models_own_json_may_be_cut_off(text: str) -> None:
    assert read_text(text, "the output") == text


@pytest.mark.parametrize(
    "text",
    [
        "ChatCompletion(id='c-1', choices=[Choice(finish_reason='stop', message=ChatCompletionMessage(content='a'))])",
        "id='c-1' choices=[Choice(finish_reason='stop', message=ChatCompletionMessage(content='a'))] created=1",
        "ModelResponse(id='c-1', choices=[])",
        "Message(id='msg_1', content=[TextBlock(text='a', type='text')], role='assistant')",
        "model='m' created_at='2025' done=True message=Message(role='assistant', content='a')",
        "content='a b' additional_kwargs={} response_metadata={'model_name': 'm'} id='run-1'",
        "[SystemMessage(content='a', additional_kwargs={}), HumanMessage(content='b')]",
        "messages=[HumanMessage(content='b')]",
        "RequestOutput(request_id=0, prompt='a', outputs=[])",
    ],
)
def test_the_text_of_a_python_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the output is the text of a Python object"):
        read_text(text, "the output")


@pytest.mark.parametrize(
    "text",
    [
        "Message(text='hi')",
        "ChatCompletion is a class.",
        "content='a' is an argument.",
        "Completion(prompt='a')",
        "model='m' is the default; message=Message(...) is not.",
        "id='a' class='b'",
    ],
)
def test_a_model_may_write_python(text: str) -> None:
    assert read_text(text, "the output") == text


@pytest.mark.parametrize(
    "text",
    [
        # Starred tuples: several texts on a line.
        *("content='" + " a" * 150_000, "id='a' " + "choices=" * 50_000),
        *(" " * 300_000, "\\" * 300_000, '"{' + "\\" * 300_000),
        *("array(" * 50_000, "array(" + " " * 300_000),
        *('{"' + '\\"' * 200_000, '{"object"' + " " * 300_000),
    ],
)
def test_long_hostile_text_stays_text(text: str) -> None:
    """A pattern whose time grows with the square of the length would not end."""
    assert read_text(text, "the output") == text
