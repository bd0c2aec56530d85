"""Requests and responses in the shapes of the APIs that serve models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from specrace.lab.logs.formats.apis.answers import Answer, is_anthropic, looks_like_answers, read_answers
from specrace.lab.logs.formats.apis.requests import Request, looks_like_request, read_request
from specrace.lab.logs.formats.apis.streams import is_stream, parse_events
from specrace.lab.logs.formats.base import Exchange, Message, Tokens, parse_nested
from specrace.lab.logs.formats.outcomes import require_text_of_model

__all__ = ["looks_like_answers", "looks_like_request", "read_exchanges"]

# How many objects deep a response is searched for edits of its prompt; a guess.
_MAX_DEPTH = 4
_ANSWERED = "the logged request ends with the answer itself, which was left out of the prompt"
_FINISHED_TURN = (
    "the request ends with a message of the assistant, which was read as a finished turn; if the model continued it, "
    "or if it was written later, the figures are wrong"
)
# A shorter answer, such as "Yes.", may be given again.
_MIN_REPEATED_WORDS = 8
_ANSWERED_EARLIER = (
    "an earlier turn of the request is the answer itself, word for word; if the log was written after the conversation "
    "went on, copying looks far too good: log each request before its answer is added"
)


def read_exchanges(request: Any, response: Any, name: str, category: str = "") -> Iterable[Exchange]:
    """An exchange for each answer in a response. Raises ValueError.

    `request`: None if the log lacks it; the response must then have the prompt's token ids. If there are both a request
    and token ids, the ids are used.
    """
    answers = read_answers(response)
    _require_unedited(response)
    for answer in answers:
        if isinstance(answer.output, str):
            require_text_of_model(answer.output)
    if all(answer.prompt is not None for answer in answers):
        parsed = _parameters_only(request)
    elif request is None:
        raise ValueError(
            "this response has no request and no token ids; log its request, too, or ask vLLM for return_token_ids"
        )
    else:
        parsed = _without_answers(read_request(request, continues=is_anthropic(response)), answers)
    for answer in answers:
        yield _exchange(parsed, answer, name, category)


def _require_unedited(response: Any, depth: int = 0) -> None:
    """Raise ValueError if Anthropic's server left out parts of the prompt before the model read it."""
    if isinstance(response, str) and "applied_edits" in response:
        # `bool` accepts every object and list that is not empty.
        response = parse_events(response) or parse_nested(response, bool)
    if isinstance(response, list) and is_stream(response):
        # As an object, whose values the loop below searches.
        response = {str(number): event for number, event in enumerate(response)}
    if not isinstance(response, dict) or depth > _MAX_DEPTH:
        return
    management = response.get("context_management")
    if isinstance(management, dict) and management.get("applied_edits"):
        raise ValueError("the server left out parts of the prompt (applied_edits), which the log does not show")
    for part in response.values():
        _require_unedited(part, depth + 1)


def _parameters_only(request: Any) -> Request:
    """The request without its text, which need not be readable if the prompt's ids are known."""
    try:
        return replace(read_request(request), tools=None, documents=None, warnings=(), prefill="")
    except ValueError:
        return Request(())


def _without_answers(request: Request, answers: list[Answer]) -> Request:
    """The request without a last message that is one of its own answers, and with a warning where one may be left.

    A program may append the answer to the list of messages before a tracer writes that list.
    """
    prompt = request.prompt
    if not isinstance(prompt, list):
        return request
    written = [_said(answer.output) for answer in answers]
    if request.prefill and _said(request.prefill) in written:
        return replace(request, prefill="", warnings=(*request.warnings, _ANSWERED))
    last = prompt[-1]
    if last["role"] != "assistant":
        earlier = [_said(message) for message in prompt if message["role"] == "assistant"]
        repeats = any((text, calls) in written and len(text.split()) >= _MIN_REPEATED_WORDS for text, calls in earlier)
        return replace(request, warnings=(*request.warnings, _ANSWERED_EARLIER)) if repeats else request
    if len(prompt) > 1 and _said(last) in written:
        return replace(request, prompt=prompt[:-1], warnings=(*request.warnings, _ANSWERED))
    return replace(request, warnings=(*request.warnings, _FINISHED_TURN))


def _said(message: Message | str) -> tuple[str, list[Any]]:
    """What a message says and calls. Its reasoning and the ids of its calls are often left out of the next request."""
    if isinstance(message, str):
        return message.strip(), []
    return message["content"].strip(), [call["function"] for call in message.get("tool_calls", ())]


def _prompt_and_output(request: Request, answer: Answer) -> tuple[Tokens | str | list[Message], Tokens | str | Message]:
    """Prompt and output of the same kind: ids if both have them, else texts or messages. Raises ValueError."""
    prompt = request.prompt if answer.prompt is None else answer.prompt
    output = answer.output
    if isinstance(prompt, tuple):
        if answer.ids is None:
            raise ValueError("the prompt is token ids and the output is not; log both in the same way")
        return prompt, answer.ids
    # An empty output means that the response has ids only.
    if not output:
        raise ValueError("the output is token ids and the prompt is not; log both in the same way")
    if isinstance(prompt, list):
        return prompt, {"role": "assistant", "content": output} if isinstance(output, str) else output
    if isinstance(output, dict):
        return [{"role": "user", "content": prompt}], output
    return prompt, _without_echo(prompt, output, request)


def _exchange(request: Request, answer: Answer, name: str, category: str) -> Exchange:
    prompt, output = _prompt_and_output(request, answer)
    if isinstance(output, dict) and request.prefill and (request.repeats_prefill or request.parameters.get("echo")):
        output = output | {"content": output["content"].removeprefix(request.prefill)}
    return Exchange(
        prompt=prompt,
        output=output,
        id=name,
        category=category,
        tools=request.tools,
        documents=request.documents,
        template_options=request.template_options,
        usage=answer.usage,
        parameters=request.parameters,
        warnings=(*request.warnings, *answer.warnings),
        prefill=request.prefill,
        draft_counts=answer.draft_counts,
    )


def _without_echo(prompt: str, output: str, request: Request) -> str:
    """The output without the prompt, if the request asked the API to repeat the prompt first. Raises ValueError."""
    echoes = request.parameters.get("echo") or request.parameters.get("return_full_text")
    if not echoes:
        return output
    if not output.startswith(prompt):
        raise ValueError("the request asks for an echo of the prompt, and the output does not begin with the prompt")
    if output == prompt:
        raise ValueError("the output is the echo of the prompt only; every transcript needs an output")
    return output[len(prompt) :]
