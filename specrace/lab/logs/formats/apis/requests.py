"""Reads the body of a request, in the shapes of the APIs that serve models.

Besides the shapes that `messages` names, these are read: OpenAI's completions and Responses API (`input`,
`instructions`), Anthropic's and Bedrock's `system`, Gemini's `systemInstruction`, Ollama's /api/generate
(ollama/ollama, docs/api.md), TGI's /generate (huggingface/text-generation-inference, docs/openapi.json), SGLang's
/generate (sgl-project/sglang, python/sglang/srt/managers/io_struct.py: GenerateReqInput), llama.cpp's /completion
(ggml-org/llama.cpp, tools/server/README.md), and the bodies of Bedrock's InvokeModel for Titan, Llama and Cohere
(docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.apis.messages import MessageReader, is_assistant_message, is_message
from specrace.lab.logs.formats.base import (
    Message,
    Row,
    Tokens,
    json_or_text,
    parse_nested,
    read_ids,
    read_text,
    require_list,
    require_object,
)
from specrace.lab.logs.formats.media import require_text_only

# Objects in which gateways and logs wrap the body.
_WRAPPERS = ("body", "request", "params", "json", "data", "kwargs", "payload", "input_data", "obj")
# Fields of a body that hold its prompt, and those that hold its parameters one level deeper.
_PROMPTS = (
    "messages",
    "contents",
    "prompt_token_ids",
    "input_ids",
    "prompt",
    "input",
    "inputs",
    "inputText",
    "text",
    "message",
    "question",
)
_NESTED_PARAMETERS = (
    "parameters",
    "sampling_params",
    "options",
    "generationConfig",
    "generation_config",
    "inferenceConfig",
    "extra_body",
    "model_parameters",
    "optional_params",
    "kwargs",
    "params",
    "config",
)
_NO_PARAMETERS = {*_PROMPTS, *_NESTED_PARAMETERS, "tools", "functions", "system", "instructions", "systemInstruction"}
# Fields that an API's request has beside its prompt.
_BESIDE = {
    *("model", "max_tokens", "max_new_tokens", "max_output_tokens", "temperature", "stream", "stop"),
    *_NESTED_PARAMETERS,
}
# How many of `_WRAPPERS` may lie within one another; a guess.
_MAX_WRAPPERS = 4
# A field of a request whose prompt is not all in the log as text -> the reason in words.
_ELSEWHERE = {
    "cachedContent": "the model read a cached prompt that is not in the log",
    "cached_content": "the model read a cached prompt that is not in the log",
    "suffix": "the model filled in the middle, and how its prompt was put together is not in the log",
    "image_data": "the prompt has an image; only text can be scored",
    "video_data": "the prompt has a video; only text can be scored",
    "audio_data": "the prompt has sound; only text can be scored",
    "input_embeds": "the prompt is embeddings; only text and ids can be scored",
    "multi_modal_data": "the prompt has an image or sound; only text can be scored",
}


@dataclass(frozen=True)
class Request:
    """The prompt of a request, and what else decides the output; the fields are those of `base.Exchange`.

    `prefill`: the beginning of the answer, which the request wrote. `repeats_prefill`: whether the answer may begin
    with it again.
    """

    prompt: Tokens | str | list[Message]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    prefill: str = ""
    repeats_prefill: bool = False


def looks_like_request(value: Any, depth: int = 0) -> bool:
    """Whether a value is a request's body, a list of messages, or an object or JSON text that holds one of them.

    JSON text must have the shape of an API's request, because a prompt may be JSON with a `question` or a `text`.
    `depth`: how many objects are around the value.
    """
    if _is_request(value, depth):
        return True
    if not isinstance(value, dict) or depth > _MAX_WRAPPERS:
        return False
    if any(_holds_prompt(value, name) for name in _PROMPTS):
        return True
    return any(looks_like_request(value[name], depth + 1) for name in _WRAPPERS if value.get(name))


def _is_request(value: Any, depth: int = 0) -> bool:
    """Whether a value has the shape of an API's request, which tells it from a prompt that is JSON."""
    if isinstance(value, str):
        return parse_nested(value, _is_request) is not value
    if isinstance(value, list):
        messages = value[0] if value and isinstance(value[0], list) else value
        return bool(messages) and all(map(is_message, messages))
    if not isinstance(value, dict) or depth > _MAX_WRAPPERS:
        return False
    if any(_holds_prompt(value, name) for name in ("messages", "contents", "prompt_token_ids", "input_ids")):
        return True
    if any(_holds_prompt(value, name) for name in _PROMPTS) and not _BESIDE.isdisjoint(value):
        return True
    return any(_is_request(value.get(name), depth + 1) for name in _WRAPPERS)


def _holds_prompt(body: Row, name: str) -> bool:
    """Whether this field of a body holds a prompt, by the type of its value."""
    value = body.get(name)
    if name in ("messages", "contents", "prompt_token_ids", "input_ids"):
        return isinstance(value, list)
    return isinstance(value, str) or (isinstance(value, list) and name in ("input", "prompt"))


def read_request(value: object, *, continues: bool = False) -> Request:
    """The request in a body, a list of messages, token ids, or text. Raises ValueError.

    `continues`: whether the model is known to continue an assistant message at the end of the request.
    """
    for _ in range(_MAX_WRAPPERS):
        value = parse_nested(value, _is_request)
        if not isinstance(value, dict) or any(_holds_prompt(value, name) for name in _PROMPTS):
            break
        value = next((value[name] for name in _WRAPPERS if looks_like_request(value.get(name))), value)
    if isinstance(value, str):
        return Request(read_text(value, "the prompt"))
    if isinstance(value, list):
        return _from_list(value)
    body = require_object(value, "the request")
    # `_continues` takes a body with `anthropic_version` for a request to Claude.
    return _from_body({"anthropic_version": ""} | body if continues else body)


def _from_list(value: list[Any]) -> Request:
    """The request in a list of token ids, of messages, or of one prompt. Raises ValueError."""
    if value and all(type(token) is int for token in value):
        return Request(read_ids(value, "the prompt"))
    if len(value) == 1 and isinstance(value[0], list):
        return _from_list(value[0])
    if len(value) == 1 and isinstance(value[0], str):
        return Request(read_text(value[0], "the prompt"))
    return _chat({"messages": value}, value)


def _require_whole(body: Row) -> None:
    """Raise ValueError if the model read something that the log lacks or that is not text."""
    for name, what in _ELSEWHERE.items():
        if body.get(name):
            raise ValueError(f"the request has {name}: {what}")
    require_text_only(body, "the prompt")
    if isinstance(body.get("prompt"), dict) and body["prompt"].get("id"):
        raise ValueError("the request has prompt.id: OpenAI keeps the text of the prompt, which is not in the log")
    context = body.get("context")
    if isinstance(context, list) and context and all(type(token) is int for token in context):
        raise ValueError("the request has context: Ollama put the turns before it, as ids, in front of the prompt")


def _from_body(body: Row) -> Request:
    """The request in a body of any API. Raises ValueError."""
    # Some libraries put tools and a system prompt among the parameters.
    nested = {key: value for key, value in beside_prompt(_nested_parameters(body)).items() if body.get(key) is None}
    body = body | nested
    _require_whole(body)
    if isinstance(body.get("messages"), list):
        messages = body["messages"]
        return _chat(body, messages[0] if len(messages) == 1 and isinstance(messages[0], list) else messages)
    if isinstance(body.get("contents"), list):
        # In Gemini's API, a "content" (a message) without a role is the user's.
        return _chat(
            body, [{"role": "user"} | content if isinstance(content, dict) else content for content in body["contents"]]
        )
    for name in ("prompt_token_ids", "input_ids"):
        if body.get(name):
            return Request(read_ids(body[name], name), parameters=parameters_of(body))
    if "input" in body:
        return _responses(body)
    name = next((name for name in _PROMPTS if body.get(name)), "")
    if not name:
        if not body:
            raise ValueError("the request has no prompt: it is empty or hidden; log it with its text")
        raise ValueError(f"the request has no prompt, but {shorten(', '.join(body), 80)}")
    if name == "message" and (body.get("chat_history") or body.get("preamble")):
        return _cohere(body)
    return _completion(body, body[name], name)


def _completion(body: Row, prompt: Any, name: str) -> Request:
    """A request with a plain prompt. If it also has a system prompt, it is a chat: Ollama and others then apply the
    model's chat template."""
    prompt = parse_nested(prompt, lambda parsed: isinstance(parsed, list) and _is_request(parsed))
    if isinstance(prompt, list):
        if len(prompt) > 1 and not all(type(token) is int for token in prompt) and not all(map(is_message, prompt)):
            raise ValueError("the request has several prompts; write a line for each")
        if prompt and all(map(is_message, prompt)):
            return _chat(body, prompt)
        return _with_parameters(_from_list(prompt), body)
    text = read_text(prompt, name)
    system = body.get("system") or body.get("system_prompt")
    if isinstance(system, str) and system and not body.get("raw"):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        return Request(messages, parameters=parameters_of(body))
    return Request(text, parameters=parameters_of(body))


def _with_parameters(request: Request, body: Row) -> Request:
    return Request(request.prompt, parameters=parameters_of(body), warnings=request.warnings, prefill=request.prefill)


def _responses(body: Row) -> Request:
    """A request of the Responses API; or any object with `input`."""
    if body.get("previous_response_id") or body.get("conversation"):
        raise ValueError("the turns before this request are kept by the server (previous_response_id), not in the log")
    logged = parse_nested(body["input"], _is_request)
    if isinstance(logged, dict):
        return read_request(logged)
    if isinstance(logged, str):
        logged = [{"role": "user", "content": logged}]
    elif isinstance(logged, list) and logged and all(type(token) is int for token in logged):
        return Request(read_ids(logged, "input"), parameters=parameters_of(body))
    return _chat(body | {"system": body.get("instructions") or body.get("system")}, logged)


def _cohere(body: Row) -> Request:
    """A request of Cohere's first chat API: chat_history [{"role": "USER" | "CHATBOT", "message"}], message."""
    roles = {"CHATBOT": "assistant", "USER": "user", "SYSTEM": "system"}
    turns = [require_object(turn, "a turn") for turn in require_list(body.get("chat_history") or [], "chat_history")]
    history = [
        {"role": roles.get(turn.get("role", ""), turn.get("role")), "content": turn.get("message")} for turn in turns
    ]
    return _chat(body | {"system": body.get("preamble")}, [*history, {"role": "user", "content": body["message"]}])


def _chat(body: Row, logged: list[Any]) -> Request:
    """A chat request: its messages after the system prompt that stands beside them, without a prefill at their end."""
    reader = MessageReader()
    messages = [
        message for logged_message in require_list(logged, "messages") for message in reader.read(logged_message)
    ]
    if not messages:
        raise ValueError("messages is empty; every transcript needs a prompt and an output")
    system = reader.read({"role": "system", "content": _system(body)})
    # A log may repeat the system prompt beside the messages.
    if system[0]["content"] and system[0] != messages[0]:
        messages = [*system, *messages]
    prefill = ""
    # Mistral's answers repeat a prefix, DeepSeek's do not (docs.mistral.ai, api-docs.deepseek.com: prefix).
    prefix = isinstance(logged[-1], dict) and logged[-1].get("prefix") is True
    ends_with_text = messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]
    if (prefix or _continues(body)) and ends_with_text and len(messages) > 1:
        prefill = messages.pop()["content"]
    options = body.get("chat_template_kwargs")
    return Request(
        prompt=_join_answers(messages),
        tools=tools_of(body),
        documents=require_list(body["documents"], "documents") if body.get("documents") else None,
        template_options=(options if isinstance(options, dict) else {}) | _template_options(body),
        parameters=parameters_of(body),
        warnings=tuple(reader.warnings),
        prefill=prefill,
        repeats_prefill=prefix,
    )


def _continues(body: Row) -> bool:
    """Whether the model continues an assistant message at the end of the request: Claude does, vLLM on request."""
    is_claude = any(name in str(body.get("model")).lower() for name in ("claude", "anthropic"))
    return is_claude or "anthropic_version" in body or body.get("continue_final_message") is True


def is_answered(body: Row) -> bool:
    """Whether a body's messages end with an answer, and not with the beginning of one that the model continues."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, dict) or not is_assistant_message(last):
        return False
    return last.get("prefix") is not True and not _continues(body)


def _system(body: Row) -> Any:
    """The system prompt that a body has beside its messages."""
    names = ("system", "systemInstruction", "system_instruction", "system_prompt", "instructions")
    system = next((body[name] for name in names if body.get(name)), None)
    if isinstance(system, dict):
        return system.get("parts") or system.get("content") or [system]
    return system


def _join_answers(messages: list[Message]) -> list[Message]:
    """The messages, with consecutive assistant messages joined, because the Responses API splits an answer."""
    joined: list[Message] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "assistant":
            last = joined[-1] = dict(joined[-1])
            last["content"] += message["content"]
            for key in ("reasoning_content", "tool_calls"):
                if key in message:
                    last[key] = last[key] + message[key] if key in last else message[key]
        else:
            joined.append(message)
    return joined


def _template_options(body: Row) -> Row:
    """The request's arguments for the chat template."""
    names = ("enable_thinking", "reasoning_effort")
    options = {name: body[name] for name in names if isinstance(body.get(name), bool | str)}
    if isinstance(body.get("think"), bool | str):  # Ollama's name for it
        options["enable_thinking"] = bool(body["think"])
    return options


def tools_of(body: Row) -> list[Any] | None:
    """The tools that a request offers, as functions in OpenAI's shape; None if it offers none. Raises ValueError."""
    tools = parse_nested(body.get("tools"), lambda parsed: isinstance(parsed, list))
    config = body.get("toolConfig") or body.get("tool_config")
    if not tools and isinstance(config, dict):
        tools = config.get("tools")
    if not tools and body.get("functions"):
        functions = require_list(body["functions"], "functions")
        tools = [{"type": "function", "function": function} for function in functions]
    if not tools:
        return None
    return [function for tool in require_list(tools, "tools") for function in _tools(tool)]


def _tools(tool: Any) -> list[Any]:
    """A tool in OpenAI's shape; Gemini lists several functions in one."""
    if not isinstance(tool, dict):
        raise ValueError("a tool is not an object")
    declared = tool.get("functionDeclarations") or tool.get("function_declarations")
    if isinstance(declared, list):
        return [{"type": "function", "function": function} for function in declared]
    spec = tool.get("toolSpec", tool)
    if "function" in tool or "name" not in spec:
        return [tool]
    parameters: Any = next(
        (spec[key] for key in ("input_schema", "parameters", "inputSchema", "schema") if key in spec), {}
    )
    if isinstance(parameters, dict) and isinstance(parameters.get("json"), dict):
        parameters = parameters["json"]
    labels = {key: spec[key] for key in ("name", "description") if key in spec}
    return [{"type": "function", "function": labels | {"parameters": parameters}}]


def parameters_of(body: Row) -> Row:
    """The request's parameters, such as temperature, with those that the API puts one level deeper."""
    flat = _nested_parameters(body)
    # In OpenAI's Responses API, `text` is the format of the answer; in SGLang's API it is the prompt.
    if isinstance(body.get("text"), dict):
        flat["text"] = body["text"]
    return flat | {key: value for key, value in body.items() if key not in _NO_PARAMETERS}


def _nested_parameters(body: Row) -> Row:
    """The parameters that a body has one level deeper, all in one object."""
    flat: Row = {}
    for name in _NESTED_PARAMETERS:
        nested = json_or_text(body[name]) if isinstance(body.get(name), str) else body.get(name)
        flat |= nested if isinstance(nested, dict) else {}
    return flat


def beside_prompt(body: Row) -> Row:
    """The fields of a body, or of a row that has its fields, that do not hold the prompt."""
    return {key: value for key, value in body.items() if key not in _PROMPTS and value is not None}
