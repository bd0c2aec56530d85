"""Requests and responses in the shapes of the APIs that serve models, one module for each part of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from specrace.lab.logs.formats.apis.answers import Answer, is_anthropic, looks_like_answers, read_answers
from specrace.lab.logs.formats.apis.requests import Request, looks_like_request, read_request
from specrace.lab.logs.formats.base import Exchange, Message, Tokens

__all__ = ["looks_like_answers", "looks_like_request", "read_exchanges"]


def read_exchanges(request: Any, response: Any, name: str, category: str = "") -> Iterable[Exchange]:
    """An exchange for each answer in a response. Raises ValueError.

    `request`: None if the log lacks it; the response must then have the prompt's token ids. If there are both a request
    and token ids, the ids are used.
    """
    answers = read_answers(response)
    if all(answer.prompt is not None for answer in answers):
        parsed = _parameters_only(request)
    elif request is None:
        raise ValueError(
            "this response has no request and no token ids; log its request, too, or ask vLLM for return_token_ids"
        )
    else:
        parsed = read_request(request, continues=is_anthropic(response))
    for answer in answers:
        yield _exchange(parsed, answer, name, category)


def _parameters_only(request: Any) -> Request:
    """The request without its text, which need not be readable if the prompt's ids are known."""
    try:
        return replace(read_request(request), tools=None, documents=None, warnings=(), prefill="")
    except ValueError:
        return Request(())


def _texts(request: Request, answer: Answer) -> tuple[Tokens | str | list[Message], Tokens | str | Message]:
    """Prompt and output of the same kind: ids if both have them, else texts or messages. Raises ValueError."""
    prompt = request.prompt if answer.prompt is None else answer.prompt
    output = answer.output
    if isinstance(prompt, tuple):
        if answer.ids is None:
            raise ValueError("the prompt is token ids and the output is not; log both in the same way")
        return prompt, answer.ids
    if not output:
        raise ValueError("the output is token ids and the prompt is not; log both in the same way")
    if isinstance(prompt, list):
        return prompt, {"role": "assistant", "content": output} if isinstance(output, str) else output
    if isinstance(output, dict):
        return [{"role": "user", "content": prompt}], output
    return prompt, _without_echo(prompt, output, request)


def _exchange(request: Request, answer: Answer, name: str, category: str) -> Exchange:
    prompt, output = _texts(request, answer)
    if isinstance(output, dict) and request.prefill and (request.repeats_prefill or request.parameters.get("echo")):
        output = output | {"content": output["content"].removeprefix(request.prefill)}
    return Exchange(
        prompt,
        output,
        name,
        category,
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
