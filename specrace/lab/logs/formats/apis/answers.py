"""Reads what a model answered, in the shapes of the APIs that serve models.

Besides the shapes that `messages` and `requests` name, these are read: vLLM's RequestOutput {"outputs": [{"text",
"token_ids"}]} (vllm-project/vllm, vllm/outputs.py), SGLang's {"text", "output_ids", "meta_info"}
(python/sglang/srt/managers/tokenizer_manager.py), TGI's {"generated_text", "details"}, llama.cpp's {"content",
"tokens_predicted"}, and LangChain's {"generations": [[{"text", "message"}]]}.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.apis.messages import (
    MessageReader,
    is_assistant_message,
    is_message,
    merge_answer,
    reasoning_text,
)
from specrace.lab.logs.formats.apis.shapes import (
    ITEMS,
    LISTS,
    MAX_WRAPPERS,
    TEXTS,
    WRAPPERS,
    is_bare_message,
    is_response,
    written_messages,
)
from specrace.lab.logs.formats.apis.streams import is_stream, join_stream, parse_events
from specrace.lab.logs.formats.base import (
    NO_USAGE,
    Message,
    Row,
    Tokens,
    Usage,
    parse_nested,
    read_ids,
    read_text,
    require_list,
    require_object,
)


@dataclass(frozen=True)
class Answer:
    """What a model wrote, as text or as a message; "" if the response has only its ids.

    `ids`, `prompt`: the token ids of the output and of the prompt, if the response has them. The other fields are those
    of `base.Exchange`.
    """

    output: str | Message
    ids: Tokens | None = None
    prompt: Tokens | None = None
    usage: Usage = NO_USAGE
    warnings: tuple[str, ...] = ()
    draft_counts: Row | None = None


def looks_like_answers(value: Any, depth: int = 0) -> bool:
    """Whether a value is a response, a message, or an object or JSON text that holds one of them.

    JSON text must have the shape of an API's response, because a model may write JSON with a `text` or an `answer`.
    `depth`: how many objects are around the value.
    """
    if isinstance(value, str):
        return is_response(value)
    if depth > MAX_WRAPPERS:
        return False
    if isinstance(value, list):
        return bool(value) and (is_stream(value) or all(looks_like_answers(part, depth + 1) for part in value))
    if not isinstance(value, dict):
        return False
    if is_response(value, depth) or any(isinstance(value.get(name), list) for name in LISTS):
        return True
    if value.get("type") in ITEMS or isinstance(value.get("output"), list | dict):
        return True
    if any(isinstance(value.get(name), str) for name in TEXTS):
        return True
    return any(looks_like_answers(value[name], depth + 1) for name in WRAPPERS if value.get(name))


def is_error(value: object) -> bool:
    """Whether a value is an API's error; an `error` without a message may be JSON that a model wrote."""
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def is_anthropic(response: object) -> bool:
    """Whether a response is Anthropic's: its models continue an assistant message at the end of the request."""
    response = parse_nested(response, lambda parsed: isinstance(parsed, dict))
    if not isinstance(response, dict):
        return False
    if response.get("type") == "message" and "stop_reason" in response:
        return True
    return any(is_anthropic(response[name]) for name in WRAPPERS if isinstance(response.get(name), dict))


def read_answers(value: object) -> list[Answer]:
    """The answers in a response, one for each of its choices. Raises ValueError."""
    for _ in range(MAX_WRAPPERS):
        events = parse_events(value) if isinstance(value, str) else None
        value = (
            parse_nested(value, lambda parsed: is_response(parsed) or is_error(parsed)) if events is None else events
        )
        if not isinstance(value, dict) or _is_answer(value):
            break
        value = next((value[name] for name in WRAPPERS if looks_like_answers(value.get(name))), value)
    if isinstance(value, list):
        return _from_list(_join_pieces(value))
    if isinstance(value, str):
        return [Answer(read_text(value, "the output"))]
    body = require_object(value, "the response")
    usage = read_usage(body)
    answers = list(_from_body(body))
    if len(answers) == 1:
        counts_of_drafts = answers[0].draft_counts or _draft_counts(body)
        return [replace(answers[0], usage=_own_or_whole(answers[0].usage, usage), draft_counts=counts_of_drafts)]
    # The usage counts the output of all choices together, so no single choice can be compared with it. The reasoning is
    # noted once, for the first choice.
    usages = [Usage(usage.prompt, None, None if number else usage.reasoning) for number in range(len(answers))]
    return [
        replace(answer, usage=_own_or_whole(answer.usage, count)) for answer, count in zip(answers, usages, strict=True)
    ]


def _draft_counts(body: Row) -> Row | None:
    """What vLLM counted of its draft tokens in a response with one answer; None if the response does not say."""
    metrics = body.get("metrics")
    counts = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    return counts if isinstance(counts, dict) else None


def _is_answer(body: Row) -> bool:
    """Whether the answer is in this object itself, and not in an object that it wraps."""
    if any(name in body for name in (*LISTS, "output", "content", "message", "output_ids")):
        return True
    return any(isinstance(body.get(name), str) and not looks_like_answers(body[name]) for name in TEXTS)


def _join_pieces(value: list[Any]) -> list[Any]:
    """The chunks of a stream whose text genai-perf logs in pieces, as {"response": text}; any other list unchanged."""
    sent = [line["response"] for line in value if isinstance(line, dict) and line.keys() == {"response"}]
    texts = [text for text in sent if isinstance(text, str)]
    if not texts or len(texts) != len(value):
        return value
    return parse_events("\n".join(texts)) or value


def _from_list(value: list[Any]) -> list[Answer]:
    """The answers in a list: of ids, of a stream's chunks, of messages, or of responses. Raises ValueError."""
    if not value:
        raise ValueError("the response is empty")
    if all(type(token) is int for token in value):
        return [Answer("", read_ids(value, "the output"))]
    if is_stream(value):
        return read_answers(join_stream(value))
    if len(value) == 1:
        return read_answers(value[0])
    if all(is_message(part) or (isinstance(part, dict) and isinstance(part.get("type"), str)) for part in value):
        return [_message_answer(value)]
    return [answer for part in value for answer in read_answers(part)]


def _from_body(body: Row) -> Iterable[Answer]:
    """The answers in the body of a response of any API. Raises ValueError."""
    inner = body["body"] if isinstance(body.get("body"), dict) else {}
    error = body.get("error") or inner.get("error")
    if isinstance(error, dict | str) and not body.get("choices"):
        raise ValueError("the request failed; there is no output")
    feedback = body.get("promptFeedback")
    if isinstance(feedback, dict) and not body.get("candidates"):
        raise ValueError(f"the prompt was blocked ({shorten(feedback.get('blockReason'), 40)}); there is no output")
    if body.get("object") == "response" and body.get("previous_response_id"):
        raise ValueError("the turns before this request are kept by the server (previous_response_id), not in the log")
    if body.get("truncated") is True:  # llama.cpp's /completion
        raise ValueError("the server truncated the prompt (truncated), so the model did not read what the log has")
    if "choices" in body:
        return _choices(body)
    if isinstance(body.get("candidates"), list):
        candidates = [require_object(candidate, "a candidate") for candidate in body["candidates"]]
        return [_message_answer([_gemini(candidate)]) for candidate in candidates]
    if isinstance(body.get("generations"), list):
        flat = [
            generation
            for group in body["generations"]
            for generation in (group if isinstance(group, list) else [group])
        ]
        return [answer for part in flat for answer in read_answers(part)]
    if isinstance(body.get("outputs"), list):
        return [
            _message_answer([output]) if is_message(output) else _completion(body, require_object(output, "an output"))
            for output in body["outputs"]
        ]
    if isinstance(body.get("results"), list):
        return [answer for part in body["results"] for answer in read_answers(part)]
    return [_single(body)]


def _single(body: Row) -> Answer:
    """The answer of a response that has exactly one."""
    output = parse_nested(body.get("output"), is_response)
    if isinstance(output, list) and output:
        return _message_answer(output) if not all(type(token) is int for token in output) else _from_list(output)[0]
    if isinstance(output, dict):
        return read_answers(output)[0]
    if is_message(body) or is_bare_message(body) or (body.get("type") == "message" and "content" in body):
        return _message_answer([{"role": "assistant"} | body])
    message = parse_nested(body.get("message"), is_response)
    if isinstance(message, dict):
        return _message_answer([{"role": "assistant"} | message])
    if messages := written_messages(body):
        return _message_answer(messages)
    if body.get("output_ids") or body.get("token_ids"):
        return _completion(body, body)
    if body.get("toolCalls"):  # Vercel's AI SDK
        return _message_answer([{"role": "assistant", "content": body.get("text"), "tool_calls": body["toolCalls"]}])
    if isinstance(body.get("generated_text"), list):
        return _message_answer(_last_turn(body["generated_text"]))
    name = next((name for name in (*TEXTS, "output", "content") if isinstance(body.get(name), str)), None)
    if name is None:
        if "embedding" in body or body.get("object") == "list":
            raise ValueError("the response is an embedding, not a text; leave such requests out")
        raise ValueError(f"the response has no output, but {shorten(', '.join(body), 80) or 'is empty'}")
    if reasoning := reasoning_text(body):  # as Ollama's /api/generate does
        return _message_answer([{"role": "assistant", "content": body[name], "reasoning": reasoning}])
    if body.get("tokens") and name in ("content", "generated_text"):  # llama.cpp's return_tokens
        return Answer(body[name], read_ids(body["tokens"], "tokens"))
    return Answer(read_text(body[name], name))


def _last_turn(messages: list[Any]) -> list[Any]:
    """The assistant's messages that end a conversation, as transformers' pipelines return it."""
    first = len(messages)
    while first and is_assistant_message(messages[first - 1]):
        first -= 1
    if first == len(messages):
        raise ValueError("generated_text does not end with a message of the assistant")
    return messages[first:]


def _gemini(candidate: Row) -> Row:
    """The message of a candidate. Raises ValueError for a blocked one, which has none."""
    content = candidate.get("content")
    if not isinstance(content, dict) or not content.get("parts"):
        raise ValueError(f"a candidate has no content ({shorten(candidate.get('finishReason'), 40)})")
    return {"role": "model"} | content


def _choices(body: Row) -> Iterable[Answer]:
    """The answers in the `choices` of a response, as OpenAI's API has them. Raises ValueError."""
    choices = [require_object(choice, "a choice") for choice in require_list(body.get("choices"), "choices")]
    if not choices:
        raise ValueError("the response has no choices")
    for choice in choices:
        ids = choice.get("prompt_token_ids") or body.get("prompt_token_ids")
        if ids:
            prompt = read_ids(ids, "prompt_token_ids")
            yield Answer("", read_ids(choice.get("token_ids"), "token_ids"), prompt)
        elif choice.get("message") is not None:
            yield _message_answer([{"role": "assistant"} | require_object(choice["message"], "message")])
        elif "text" in choice:
            yield Answer(read_text(choice["text"], "text"))
        elif "delta" in choice:
            raise ValueError(
                "this is one chunk of a stream; write the chunks of a response as one list, with its request"
            )
        elif "turns" in choice:
            raise ValueError(
                "these are MT-bench's answers without questions; write the messages of each conversation in a line"
            )
        else:
            raise ValueError("a choice has neither a message nor text")


def _completion(body: Row, output: Row) -> Answer:
    """An output of vLLM's or SGLang's engines, which may have text and ids."""
    ids = output.get("token_ids") or output.get("output_ids")
    prompt = output.get("prompt_token_ids") or body.get("prompt_token_ids") or body.get("input_ids")
    if not ids:
        return Answer(read_text(output.get("text"), "text"))
    text = output.get("text")
    known_prompt = read_ids(prompt, "prompt_token_ids") if prompt else None
    return Answer(text if isinstance(text, str) else "", read_ids(ids, "token_ids"), known_prompt)


def _message_answer(logged: list[Any]) -> Answer:
    """The answer in one or more messages, which are merged. Raises ValueError."""
    reader = MessageReader()
    messages = [message for logged_message in logged for message in reader.read(_as_message(logged_message))]
    return Answer(merge_answer(messages), warnings=tuple(reader.warnings))


def _as_message(logged_message: Any) -> Any:
    """A message with its role, from text or from an item of the Responses API; any other value as it is."""
    if isinstance(logged_message, dict) and logged_message.get("type") == "message":
        return {"role": "assistant"} | logged_message
    return {"role": "assistant", "content": logged_message} if isinstance(logged_message, str) else logged_message


# The APIs' names for the number of tokens in the prompt, and in the output.
_PROMPT_COUNTS = (
    "prompt_tokens",
    "input_tokens",
    "promptTokenCount",
    "inputTokens",
    "inputTokenCount",
    "prompt_eval_count",
)
_OUTPUT_COUNTS = (
    "completion_tokens",
    "output_tokens",
    "outputTokens",
    "outputTokenCount",
    "eval_count",
    "tokens_predicted",
    "generated_tokens",
    "generation_token_count",
)
# Anthropic counts separately the parts of the prompt that were read from its cache or written to it.
_CACHED_COUNTS = (
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "cacheWriteInputTokens",
)


def read_usage(body: Row) -> Usage:
    """The tokens that the server counted; fields are None if the response has no such count."""
    candidates = (body.get("usage"), body.get("usageMetadata"), body.get("usage_metadata"), body.get("meta_info"), body)
    logged = next((counts for counts in candidates if isinstance(counts, dict) and counts), {})
    prompt = _count(logged, _PROMPT_COUNTS)
    cached = [count for name in _CACHED_COUNTS if (count := _count(logged, (name,)))]
    if prompt is not None and cached:
        prompt += sum(cached)
    output = _count(logged, _OUTPUT_COUNTS)
    details = logged.get("completion_tokens_details") or logged.get("output_tokens_details") or {}
    reasoning = _count(details, ("reasoning_tokens",)) if isinstance(details, dict) else None
    if (written := _count(logged, ("candidatesTokenCount",))) is not None:
        # Gemini counts its reasoning ("thoughts") separately.
        reasoning = _count(logged, ("thoughtsTokenCount",))
        output = written + (reasoning or 0)
    return Usage(prompt, output, reasoning)


def _count(logged: Row, names: Iterable[str]) -> int | None:
    """The first count that is logged under one of these names; None if there is none, or it is no count."""
    value = next((logged[name] for name in names if logged.get(name) is not None), None)
    return value if type(value) is int and value >= 0 else None


def _own_or_whole(own: Usage, whole: Usage) -> Usage:
    """The usage of an answer, or that of the whole response if the answer has none."""
    return whole if own == NO_USAGE else own
