"""The same twenty requests in every log format, each in its published shape, and a tokenizer with a chat template.

A function named after a format writes a log in a folder and returns its files; one that begins with an underscore makes
a part of a row. The sources of the shapes are named in specrace/lab/logs/formats/.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer

Message = dict[str, str]
TEMPLATE = (
    "{%- for message in messages -%}{{ message.role }}: {{ message.content }}"
    "{%- if message.tool_calls -%}{{ message.tool_calls | tojson }}{%- endif -%}<|end|>{{ '\\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}assistant: {%- endif -%}"
)
WORDS = ("the", "moon", "pulls", "sea", "hall", "was", "built", "in", "1911", "of", "stone", "and", "tides", "rise")


def chat_folder(folder: Path, template: str = TEMPLATE) -> Path:
    """The bundled tokenizer with a template that shows every message, as a model's folder has it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED_MODEL / name, folder / name)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def conversations() -> list[list[Message]]:
    """Ten conversations of two turns each: twenty requests."""
    draw = random.Random(7)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(4, 20))) + "."

    return [
        [{"role": role, "content": sentence()} for role in ("user", "assistant", "user", "assistant")]
        for _ in range(10)
    ]


def requests() -> list[tuple[str, list[Message], str]]:
    """(id, messages, answer) of each of the twenty requests."""
    return [
        (f"r{number}-{turn}", conversation[:turn], conversation[turn]["content"])
        for number, conversation in enumerate(conversations())
        for turn in (1, 3)
    ]


def ids_of(tokenizer: ChatTokenizer) -> list[tuple[list[int], list[int]]]:
    """Prompt and output ids of the twenty requests, as a server would log them."""
    pairs = [
        tokenizer.chat(list(messages), {"role": "assistant", "content": answer}, None)
        for _, messages, answer in requests()
    ]
    return [(list(prompt), list(output)) for prompt, output, _ in pairs]


def texts() -> list[tuple[str, str]]:
    """Prompt and output of the twenty requests as texts, as the template writes them."""
    return [
        (
            "".join(f"{message['role']}: {message['content']}<|end|>\n" for message in messages) + "assistant:",
            f" {answer}<|end|>",
        )
        for _, messages, answer in requests()
    ]


def _lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _answer(text: str, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text, "tool_calls": []}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice | more]}


def own_text(folder: Path) -> list[Path]:
    return [_lines(folder / "own.jsonl", [{"prompt": prompt, "output": output} for prompt, output in texts()])]


def own_ids(folder: Path) -> list[Path]:
    pairs = ids_of(load_tokenizer(chat_folder(folder / "chat")))
    return [_lines(folder / "ids.jsonl", [{"prompt_ids": prompt, "output_ids": output} for prompt, output in pairs])]


def openai_chat(folder: Path) -> list[Path]:
    return [_lines(folder / "chat.jsonl", [{"messages": conversation} for conversation in conversations()])]


def sharegpt(folder: Path) -> list[Path]:
    speakers = {"user": "human", "assistant": "gpt"}
    rows = [
        {
            "id": f"c{n}",
            "conversations": [
                {"from": speakers[message["role"]], "value": message["content"]} for message in conversation
            ],
        }
        for n, conversation in enumerate(conversations())
    ]
    return [_lines(folder / "sharegpt.jsonl", rows)]


def _batch_rows() -> tuple[list[Any], list[Any]]:
    requests_rows, responses_rows = [], []
    for name, messages, answer in requests():
        body = {"model": "m", "messages": messages}
        requests_rows.append({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
        response = {"status_code": 200, "request_id": f"vllm-batch-{name}", "body": _answer(answer)}
        responses_rows.append({"id": f"vllm-{name}", "custom_id": name, "response": response, "error": None})
    return requests_rows, responses_rows


def batch_pair(folder: Path) -> list[Path]:
    requests_rows, responses_rows = _batch_rows()
    return [_lines(folder / "requests.jsonl", requests_rows[::-1]), _lines(folder / "responses.jsonl", responses_rows)]


def batch_one_file(folder: Path) -> list[Path]:
    requests_rows, responses_rows = _batch_rows()
    return [_lines(folder / "both.jsonl", [*responses_rows, *requests_rows])]


def batch_completions(folder: Path) -> list[Path]:
    requests_rows, responses_rows = [], []
    for number, (prompt, output) in enumerate(texts()):
        body = {"model": "m", "prompt": prompt}
        requests_rows.append({"custom_id": f"{number}", "method": "POST", "url": "/v1/completions", "body": body})
        choice = {"index": 0, "text": output, "finish_reason": "stop"}
        completion = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
        response = {"status_code": 200, "request_id": f"{number}", "body": completion}
        responses_rows.append({"id": f"b{number}", "custom_id": f"{number}", "response": response, "error": None})
    return [_lines(folder / "responses.jsonl", responses_rows), _lines(folder / "requests.jsonl", requests_rows)]


def vllm_ids(folder: Path) -> list[Path]:
    pairs = ids_of(load_tokenizer(chat_folder(folder / "chat")))
    rows = [
        _answer(answer, token_ids=output) | {"prompt_token_ids": prompt}
        for (_, _, answer), (prompt, output) in zip(requests(), pairs, strict=True)
    ]
    return [_lines(folder / "vllm.jsonl", rows)]


def litellm(folder: Path) -> list[Path]:
    rows = [
        {
            "id": name,
            "trace_id": None,
            "call_type": "acompletion",
            "status": "success",
            "startTime": 1.0,
            "model": "m",
            "messages": messages,
            "response": _answer(answer),
            "model_parameters": {},
            "error_str": None,
        }
        for name, messages, answer in requests()
    ]
    return [_lines(folder / "litellm.jsonl", rows)]


def langfuse(folder: Path) -> list[Path]:
    rows: list[Any] = [{"id": "s", "trace_id": "t", "type": "SPAN", "input": "{}", "output": None}]
    for name, messages, answer in requests():
        fields = {"input": json.dumps(messages), "output": json.dumps({"role": "assistant", "content": answer})}
        rows.append({"id": name, "trace_id": "t", "type": "GENERATION", "provided_model_name": "m"} | fields)
    return [_lines(folder / "langfuse.jsonl", rows)]


def _aiperf_row(name: str, messages: list[Message], responses: list[Any]) -> dict[str, Any]:
    metadata = {"session_num": 0, "x_request_id": name, "request_start_ns": 1, "benchmark_phase": "profiling"}
    payload = {"model": "m", "messages": messages, "stream": len(responses) > 1}
    return {"metadata": metadata, "start_perf_ns": 1, "payload": payload, "status": 200, "responses": responses}


def aiperf_text(folder: Path) -> list[Path]:
    rows = [
        _aiperf_row(
            name,
            messages,
            [{"perf_ns": 2, "content_type": "application/json", "text": json.dumps(_answer(answer))}],
        )
        for name, messages, answer in requests()
    ]
    return [_lines(folder / "profile_export_raw.jsonl", rows)]


def aiperf_streamed(folder: Path) -> list[Path]:
    rows = []
    for name, messages, answer in requests():
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": answer[start : start + 5]} for start in range(0, len(answer), 5)]
        data = [json.dumps({"object": "chat.completion.chunk", "choices": [{"delta": delta}]}) for delta in deltas]
        events = [{"perf_ns": 2, "packets": [{"name": "data", "value": value}]} for value in [*data, "[DONE]"]]
        rows.append(_aiperf_row(name, messages, events))
    return [_lines(folder / "profile_export_raw.jsonl", rows)]


def claude_code(folder: Path) -> list[Path]:
    rows: list[Any] = [{"type": "summary", "summary": "The moon", "leafUuid": "u"}]
    for number, conversation in enumerate(conversations()):
        parent = None
        for turn, message in enumerate(conversation):
            uuid, role, text = f"{number}-{turn}", message["role"], message["content"]
            fields = {"parentUuid": parent, "isSidechain": False, "sessionId": f"s{number}", "type": role, "uuid": uuid}
            # The assistant's text is split into two lines of one message.
            parts = [text] if role == "user" else [text[:7], text[7:]]
            for part in parts:
                content: Any = part if role == "user" else [{"type": "text", "text": part}]
                inner = {"role": role, "content": content} | ({} if role == "user" else {"id": f"msg_{uuid}"})
                rows.append(fields | {"message": inner, "timestamp": "2026-01-01T00:00:00.000Z"})
            parent = uuid
        rows.append({"type": "system", "sessionId": f"s{number}", "subtype": "stop_hook_summary", "parentUuid": parent})
    return [_lines(folder / "session.jsonl", rows)]


def codex(folder: Path) -> list[Path]:
    rows: list[Any] = []
    for number, conversation in enumerate(conversations()):
        payload: dict[str, Any] = {"id": f"s{number}", "cwd": "/w", "originator": "codex_cli", "cli_version": "1.0.0"}
        rows.append({"timestamp": "t", "type": "session_meta", "payload": payload})
        for message in conversation:
            kind = "input_text" if message["role"] == "user" else "output_text"
            content = [{"type": kind, "text": message["content"]}]
            item = {"type": "message", "role": message["role"], "content": content}
            rows.append({"timestamp": "t", "type": "response_item", "payload": item})
            rows.append({"timestamp": "t", "type": "event_msg", "payload": {"type": "token_count"}})
    return [_lines(folder / "rollout.jsonl", rows)]


def csv_text(folder: Path) -> list[Path]:
    path = folder / "table.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["prompt", "output", "model"])
        writer.writerows([*pair, "m"] for pair in texts())
    return [path]


def _row_writer(name: str, row: Callable[[str, list[Message], str], Any]) -> Callable[[Path], list[Path]]:
    """A function that writes the log NAME.jsonl; `row` makes one row, or a list of rows, from each request."""

    def make(folder: Path) -> list[Path]:
        rows = [row(*request) for request in requests()]
        flat = [line for made in rows for line in (made if isinstance(made, list) else [made])]
        return [_lines(folder / f"{name}.jsonl", flat)]

    return make


def _reply(answer: str) -> dict[str, Any]:
    return {"role": "assistant", "content": answer}


def _gemini_request(messages: list[Message]) -> dict[str, Any]:
    roles = {"user": "user", "assistant": "model"}
    return {"contents": [{"role": roles[turn["role"]], "parts": [{"text": turn["content"]}]} for turn in messages]}


def _gemini_response(answer: str) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": answer}]}, "finishReason": "STOP"}]}


def _anthropic(answer: str) -> dict[str, Any]:
    content = [{"type": "text", "text": answer}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}


def _responses(answer: str) -> dict[str, Any]:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "content": []}
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}
    return {"id": "resp_1", "object": "response", "output": [reasoning, message]}


def _langchain(message: Message) -> dict[str, Any]:
    kind = {"user": "HumanMessage", "assistant": "AIMessage"}[message["role"]]
    path = ["langchain", "schema", "messages", kind]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": message["content"]}}


def _converse(message: Message) -> dict[str, Any]:
    return {"role": message["role"], "content": [{"text": message["content"]}]}


def _bedrock(name: str, messages: list[Message], answer: str) -> dict[str, Any]:
    request = {"messages": [_converse(message) for message in messages], "inferenceConfig": {"maxTokens": 9}}
    output = {"outputBodyJson": {"output": {"message": _converse({"role": "assistant", "content": answer})}}}
    about = {"schemaType": "ModelInvocationLog", "operation": "Converse", "requestId": name}
    return about | {"input": {"inputBodyJson": request}, "output": output}


def _parts(message: Message) -> dict[str, Any]:
    return {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}]}


def _flat_span(name: str, messages: list[Message], answer: str) -> dict[str, Any]:
    read, written = [_parts(message) for message in messages], [_parts({"role": "assistant", "content": answer})]
    attributes = {"gen_ai.input.messages": json.dumps(read), "gen_ai.output.messages": json.dumps(written)}
    return {"name": "chat m", "span_id": name, "attributes": attributes | {"gen_ai.operation.name": "chat"}}


def _otlp(name: str, messages: list[Message], answer: str) -> dict[str, Any]:
    flat = {"gen_ai.usage.input_tokens": 1}
    for index, message in enumerate(messages):
        flat |= {f"gen_ai.prompt.{index}.{key}": value for key, value in message.items()}
    flat |= {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": answer}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in flat.items()]
    spans = [{"spanId": name, "attributes": attributes}, {"spanId": "tool", "attributes": []}]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def _posthog(name: str, messages: list[Message], answer: str) -> dict[str, Any]:
    properties = {"$ai_input": messages, "$ai_output_choices": [_reply(answer)], "$ai_model": "m"}
    return {"event": "$ai_generation", "uuid": name, "properties": properties}


def _lm_eval(name: str, messages: list[Message], answer: str) -> dict[str, Any]:
    arguments = {"gen_args_0": {"arg_0": json.dumps(messages), "arg_1": {"until": []}}}
    return {"doc_id": name, "doc": {}, "target": "", "arguments": arguments, "resps": [[answer]]}


def sglang(folder: Path) -> list[Path]:
    pairs = ids_of(load_tokenizer(chat_folder(folder / "chat")))
    rows: list[Any] = []
    for number, (prompt, output) in enumerate(pairs):
        request = {"rid": f"{number}", "input_ids": prompt, "sampling_params": {"temperature": 0}}
        rows.append({"timestamp": "t", "event": "request.received", "rid": f"{number}", "obj": request})
        answer = {"text": "?", "output_ids": output, "meta_info": {"id": f"{number}"}}
        rows.append({"timestamp": "t", "event": "request.finished", "rid": f"{number}", "obj": request, "out": answer})
    return [_lines(folder / "sglang.jsonl", rows)]


# For each format (its name, with a suffix if it has several shapes), the function that writes a log of it in a folder.
SHAPES: dict[str, Callable[[Path], list[Path]]] = {
    "specrace text": own_text,
    "specrace ids": own_ids,
    "openai-chat": openai_chat,
    "sharegpt": sharegpt,
    "openai-batch pair": batch_pair,
    "openai-batch one": batch_one_file,
    "openai-batch completions": batch_completions,
    "openai-response": vllm_ids,
    "litellm": litellm,
    "langfuse": langfuse,
    "aiperf text": aiperf_text,
    "aiperf streamed": aiperf_streamed,
    "claude-code": claude_code,
    "codex": codex,
    "csv": csv_text,
    "sglang": sglang,
    "openai-batch responses": _row_writer(
        "responses",
        lambda name, messages, answer: {
            "custom_id": name,
            "body": {"input": messages},
            "response": {"status_code": 200, "body": _responses(answer)},
        },
    ),
    "anthropic-batch": _row_writer(
        "results",
        lambda name, messages, answer: [
            {"custom_id": name, "params": {"max_tokens": 9, "messages": messages}},
            {"custom_id": name, "result": {"type": "succeeded", "message": _anthropic(answer)}},
        ],
    ),
    "gemini-batch": _row_writer(
        "gemini",
        lambda name, messages, answer: [
            {"key": name, "request": _gemini_request(messages)},
            {"key": name, "response": _gemini_response(answer)},
        ],
    ),
    "litellm spend": _row_writer(
        "spend",
        lambda name, messages, answer: {
            "request_id": name,
            "messages": "{}",
            "response": json.dumps(_answer(answer)),
            "proxy_server_request": json.dumps({"model": "m", "messages": messages}),
        },
    ),
    "braintrust": _row_writer(
        "braintrust",
        lambda name, messages, answer: [
            {"id": "t", "span_attributes": {"type": "task"}, "input": messages, "output": answer},
            {
                "id": name,
                "span_attributes": {"name": "Chat Completion", "type": "llm"},
                "input": messages,
                "output": [{"index": 0, "message": _reply(answer), "finish_reason": "stop"}],
                "metadata": {"model": "m"},
            },
        ],
    ),
    "datadog": _row_writer(
        "datadog",
        lambda name, messages, answer: [
            {"span_id": "w", "meta": {"kind": "workflow", "input": {"value": "?"}, "output": {"value": answer}}},
            {
                "span_id": name,
                "meta": {"kind": "llm", "input": {"messages": messages}, "output": {"messages": [_reply(answer)]}},
            },
        ],
    ),
    "weave": _row_writer(
        "weave",
        lambda name, messages, answer: [
            {"id": "w", "op_name": "weave:///e/p/op/ask:v0", "inputs": {"messages": messages}, "output": answer},
            {
                "id": name,
                "op_name": "weave:///e/p/op/openai.chat.completions.create:v0",
                "inputs": {"model": "m", "messages": messages},
                "output": _answer(answer),
            },
        ],
    ),
    "opentelemetry phoenix": _row_writer(
        "phoenix",
        lambda name, messages, answer: {
            "context.span_id": name,
            "attributes.llm.input_messages": [
                {f"message.{key}": value for key, value in message.items()} for message in messages
            ],
            "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": answer}],
        },
    ),
    "opentelemetry mlflow": _row_writer(
        "mlflow",
        lambda name, messages, answer: {
            "info": {"trace_id": name},
            "data": {
                "spans": [
                    {"span_id": "a", "attributes": {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": '{"q": "?"}'}},
                    {
                        "span_id": name,
                        "attributes": {
                            "mlflow.spanType": '"CHAT_MODEL"',
                            "mlflow.spanInputs": json.dumps({"messages": messages}),
                            "mlflow.spanOutputs": json.dumps(_answer(answer)),
                        },
                    },
                ]
            },
        },
    ),
    "request-response events": _row_writer(
        "events",
        lambda _, messages, answer: {
            "request": {"messages": messages, "stream": True},
            "response": "".join(
                f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': piece}}]})}\n\n"
                for piece in (answer[:4], answer[4:])
            )
            + "data: [DONE]\n\n",
        },
    ),
    "langfuse quoted": _row_writer(
        "quoted",
        lambda name, messages, answer: {
            "id": name,
            "traceId": "t",
            "type": "GENERATION",
            "input": json.dumps(json.dumps(messages)),
            "output": json.dumps(answer),
        },
    ),
    "langsmith": _row_writer(
        "runs",
        lambda name, messages, answer: {
            "id": name,
            "run_type": "llm",
            "inputs": {"messages": [[_langchain(message) for message in messages]]},
            "outputs": {"generations": [[{"text": answer, "message": _langchain(_reply(answer))}]]},
        },
    ),
    "posthog": _row_writer("events", _posthog),
    "bedrock": _row_writer("bedrock", _bedrock),
    "opentelemetry flat": _row_writer("flat", _flat_span),
    "opentelemetry nested": _row_writer("otlp", _otlp),
    "lm-eval": _row_writer("samples", _lm_eval),
    "alpaca": _row_writer(
        "alpaca",
        lambda _, messages, answer: {
            "instruction": messages[-1]["content"],
            "input": "",
            "output": answer,
            "history": [[messages[0]["content"], messages[1]["content"]]] if len(messages) > 1 else [],
        },
    ),
    "prompt-completion": _row_writer(
        "trl", lambda _, messages, answer: {"prompt": messages, "completion": [_reply(answer)]}
    ),
    "prompt-completion preferences": _row_writer(
        "dpo",
        lambda _, messages, answer: {
            "chosen": [*messages, _reply(answer)],
            "rejected": [*messages, _reply("No.")],
        },
    ),
    "request-response helicone": _row_writer(
        "helicone",
        lambda name, messages, answer: {
            "request_id": name,
            "request_body": {"messages": messages},
            "response_body": _answer(answer),
            "response_status": 200,
        },
    ),
    "request-response ollama": _row_writer(
        "ollama",
        lambda _, messages, answer: {"model": "m", "messages": messages, "message": _reply(answer), "done": True},
    ),
    "request-response vertex": _row_writer(
        "vertex",
        lambda _, messages, answer: {"request": _gemini_request(messages), "response": _gemini_response(answer)},
    ),
    "request-response claude": _row_writer(
        "claude", lambda _, messages, answer: {"request": {"messages": messages}, "response": _anthropic(answer)}
    ),
    "request-response guidellm": _row_writer(
        "guidellm",
        lambda name, messages, answer: {
            "request_id": name,
            "request_args": json.dumps({"body": {"messages": messages}}),
            "output": answer,
        },
    ),
}
