"""The protocols that servers speak, and how to recognise which one a server speaks.

Answers of vLLM 0.32 and llama.cpp's server were recorded (tests/servers/exchanges). The code for SGLang follows its
documentation; SGLang's answers get the same checks. Text that comes without token ids is not tokenized again, because
that could give other tokens than those that the server generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from specrace.servers.connection import Connection
from specrace.servers.reply import Chunk, Reply, Request, field_of, read_count, read_counts, read_tokens

# `owned_by` in a list of models -> software that streams no token ids: its name, and the path at which it tells its
# version, if there is one.
WITHOUT_IDS = {
    "library": ("Ollama", "/api/version"),
    "organization_owner": ("LM Studio", ""),
    "tensorrt_llm": ("TensorRT-LLM", "/version"),
}
# The reason that a server gives for the end of a text -> our word for it.
ENDS = {"stop": "eos", "eos": "eos", "length": "length", "limit": "length"}


class Dialect(Protocol):
    """How one kind of server is asked, and how its stream is read.

    `engine`: the software, with its version if it tells. `model`: the name by which the server knows its model. `path`:
    where requests go. `why_no_steps`: why its chunks are not steps; "" if each chunk should be a step. `sends_ids`:
    whether it streams token ids, and takes them as a prompt.
    """

    engine: str
    model: str
    path: str
    why_no_steps: str
    sends_ids: ClassVar[bool]

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON of a request."""

    def read(self, at_ms: float, event: Mapping[str, Any], reply: Reply) -> None:
        """Add one event of the stream to the reply."""


@dataclass
class Vllm:
    """vLLM. With --per-request-spec-decode-metrics its last event lists each step's draft tokens."""

    engine: str
    model: str
    path: str = "/v1/completions"
    why_no_steps: str = ""
    sends_ids: ClassVar[bool] = True

    def body(self, request: Request) -> dict[str, Any]:
        """Ask for token ids, and undo what the model's generation_config.json sets."""
        return {
            "model": self.model,
            "prompt": list(request.prompt),
            "max_tokens": request.max_new_tokens,
            "temperature": 0.0,
            "repetition_penalty": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "add_special_tokens": False,
            "skip_special_tokens": True,
            **({"cache_salt": request.cache_salt} if request.cache_salt else {}),
        }

    def read(self, at_ms: float, event: Mapping[str, Any], reply: Reply) -> None:
        """Read a chunk of a completion."""
        choice = field_of(event, "choices", 0)
        text, tokens = str(field_of(choice, "text") or ""), read_tokens(field_of(choice, "token_ids"))
        if tokens or text:
            reply.chunks.append(Chunk(at_ms, text, tokens))
        reply.end = ENDS.get(str(field_of(choice, "finish_reason")), reply.end)
        prompt = read_tokens(field_of(choice, "prompt_token_ids"))
        reply.prompt = reply.prompt if prompt is None else prompt
        num_tokens = read_count(field_of(event, "usage", "completion_tokens"))
        reply.num_tokens = reply.num_tokens if num_tokens is None else num_tokens
        metrics = field_of(event, "metrics", "speculative_decoding")
        if metrics is not None:
            reply.accepted = read_counts(field_of(metrics, "per_step_accepted"))
            reply.drafted = read_counts(field_of(metrics, "per_step_drafted"))
            reply.num_accepted = read_count(field_of(metrics, "num_accepted_draft_tokens"))
            reply.num_drafted = read_count(field_of(metrics, "num_draft_tokens"))


@dataclass
class LlamaCpp:
    """llama.cpp's server, through its own route, which sends token ids. It streams tokens one by one."""

    engine: str
    model: str
    path: str = "/completion"
    why_no_steps: str = "llama.cpp streams token by token, so the stream does not show its steps"
    sends_ids: ClassVar[bool] = True

    def body(self, request: Request) -> dict[str, Any]:
        """Ask for greedy decoding (a top-k of 1) without the prompt cache, which would hide the prefill time."""
        return {
            "prompt": list(request.prompt),
            "n_predict": request.max_new_tokens,
            "samplers": ["top_k"],
            "top_k": 1,
            "repeat_penalty": 1.0,
            "cache_prompt": False,
            "return_tokens": True,
            "stream": True,
        }

    def read(self, at_ms: float, event: Mapping[str, Any], reply: Reply) -> None:
        """Read one token, or the last event, which has the totals."""
        tokens = read_tokens(event.get("tokens"))
        if tokens or event.get("content"):
            reply.chunks.append(Chunk(at_ms, str(event.get("content") or ""), tokens))
        if event.get("stop") is True:
            reply.end = ENDS.get(str(event.get("stop_type")), "")
            reply.num_tokens = read_count(event.get("tokens_predicted"))
            reply.num_drafted = read_count(field_of(event, "timings", "draft_n"))
            reply.num_accepted = read_count(field_of(event, "timings", "draft_n_accepted"))
            if reply.num_tokens is not None and reply.num_accepted is not None:
                # A step emits its accepted tokens and one more, so there is one step per token that is not accepted.
                reply.num_steps = reply.num_tokens - reply.num_accepted


@dataclass
class SGLang:
    """SGLang, through its own route, whose `output_ids` are either the new tokens or all tokens so far.

    `sends_new`: whether only the new ones (its flag --incremental-streaming-output); None if it does not tell.
    """

    engine: str
    model: str
    path: str = "/generate"
    why_no_steps: str = ""
    sends_new: bool | None = None
    sends_ids: ClassVar[bool] = True

    def body(self, request: Request) -> dict[str, Any]:
        """Ask for the ids of the answer."""
        sampling = {"temperature": 0.0, "max_new_tokens": request.max_new_tokens, "repetition_penalty": 1.0}
        return {"input_ids": list(request.prompt), "sampling_params": sampling, "stream": True}

    def read(self, at_ms: float, event: Mapping[str, Any], reply: Reply) -> None:
        """Read a chunk. Its text and ids may repeat those of earlier chunks; only the new ones are kept."""
        tokens, text = read_tokens(event.get("output_ids")), str(event.get("text") or "")
        earlier_tokens = tuple(token for chunk in reply.chunks for token in chunk.tokens or ())
        earlier_text = reply.text
        if self.sends_new is not True:
            if earlier_tokens and tokens is not None and tokens[: len(earlier_tokens)] == earlier_tokens:
                tokens = tokens[len(earlier_tokens) :]
            if earlier_text and text.startswith(earlier_text):
                text = text[len(earlier_text) :]
        if tokens or (tokens is None and text):
            reply.chunks.append(Chunk(at_ms, text, tokens))
        meta = event.get("meta_info")
        reply.end = ENDS.get(str(field_of(meta, "finish_reason", "type")), reply.end)
        reply.num_tokens = read_count(field_of(meta, "completion_tokens"))
        reply.num_steps = read_count(field_of(meta, "spec_verify_ct"))


@dataclass
class Chat:
    """OpenAI's chat protocol, which many servers speak: text without token ids, through the server's own template.

    `full_name`: the model's whole name, which may be a path on the server's disk; `model` is its last part.
    """

    engine: str
    model: str
    full_name: str
    path: str = "/v1/chat/completions"
    why_no_steps: str = "its stream is text without token ids, and its own chat template words the prompt"
    sends_ids: ClassVar[bool] = False

    def body(self, request: Request) -> dict[str, Any]:
        """Ask for a greedy answer to the user's message."""
        return {
            "model": self.full_name,
            "messages": [{"role": "user", "content": request.message}],
            "max_tokens": request.max_new_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def read(self, at_ms: float, event: Mapping[str, Any], reply: Reply) -> None:
        """Read a chunk of an answer. Some servers send thoughts in a separate field."""
        choice = field_of(event, "choices", 0)
        text = field_of(choice, "delta", "content")
        if isinstance(text, str) and text:
            reply.chunks.append(Chunk(at_ms, text))
        thought = field_of(choice, "delta", "reasoning_content") or field_of(choice, "delta", "reasoning")
        reply.has_thoughts = reply.has_thoughts or bool(thought)
        reply.end = ENDS.get(str(field_of(choice, "finish_reason")), reply.end)
        num_tokens = read_count(field_of(event, "usage", "completion_tokens"))
        reply.num_tokens = reply.num_tokens if num_tokens is None else num_tokens


def recognise(connection: Connection, model: str = "", *, needs_ids: bool = True) -> Dialect:
    """The dialect of a server. `model`: the model to ask for; by default the server's only one.

    Raises InputError; with `needs_ids`, also for a server that streams text without token ids.
    """
    listed = connection.find_json("/v1/models")
    rows = field_of(listed, "data")
    models = [str(field_of(row, "id")) for row in rows if field_of(row, "id")] if isinstance(rows, list) else []
    if model and models and model not in models:
        raise connection.fault(f"has no model {model!r}; it has {', '.join(models[:5])}")
    if not model and len(models) > 1:
        raise connection.fault(f"has {len(models)} models; add one to its address, for instance #{models[0]}")
    name = model or (models[0] if models else "")
    owner = str(field_of(rows, 0, "owned_by") or "")
    if owner in BY_OWNER:
        return BY_OWNER[owner](connection, name)
    if not name or not isinstance(rows, list):
        raise connection.fault("lists no models at /v1/models, so it is no server of a kind that can be raced")
    kind, version_path = WITHOUT_IDS.get(owner, ("an OpenAI-compatible server", ""))
    if needs_ids:
        raise connection.fault(
            f"is {kind}, whose stream has no token ids, which are needed here; give a vLLM, SGLang or llama.cpp server"
        )
    version = field_of(connection.find_json(version_path), "version") if version_path else None
    # A name that begins with a slash is a path on the server's disk, of which only the last part is shown.
    shown_name = name.rpartition("/")[2] if name.startswith("/") else name
    return Chat(_with_version(kind, version), shown_name, name)


def _vllm(connection: Connection, model: str) -> Dialect:
    version = field_of(connection.find_json("/version"), "version")
    return Vllm(_with_version("vLLM", version), model)


def _llama_cpp(connection: Connection, model: str) -> Dialect:
    build = field_of(connection.find_json("/props"), "build_info")
    # The name is the path of a file on the server's disk.
    return LlamaCpp(_with_version("llama.cpp", build), model.rpartition("/")[2])


def _sglang(connection: Connection, model: str) -> Dialect:
    info = connection.find_json("/server_info") or connection.find_json("/get_server_info")
    interval = field_of(info, "stream_interval")
    sends_new = field_of(info, "incremental_streaming_output")
    dialect = SGLang(_with_version("SGLang", field_of(info, "version")), model)
    dialect.sends_new = sends_new if isinstance(sends_new, bool) else None
    if type(interval) is int and interval > 1:
        dialect.why_no_steps = f"it streams every {interval} steps (--stream-interval), so a chunk is not one step"
    return dialect


def _with_version(engine: str, version: object) -> str:
    """The engine's name, followed by its version, cut to 40 characters, if the version is text."""
    return f"{engine} {version[:40]}" if isinstance(version, str) and version else engine


# `owned_by` in a list of models -> the function that makes the dialect of such a server.
BY_OWNER: dict[str, Callable[[Connection, str], Dialect]] = {
    "vllm": _vllm,
    "llamacpp": _llama_cpp,
    "sglang": _sglang,
}
