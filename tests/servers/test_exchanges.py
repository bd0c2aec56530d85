"""What vLLM 0.32.0, llama.cpp's server and `transformers serve` really streamed, read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specrace.core.bundled import BUNDLED_MODEL
from specrace.model.chat.tokenizer import load_tokenizer
from specrace.servers.client import ask
from specrace.servers.connection import Connection
from specrace.servers.dialects import Chat, Dialect, LlamaCpp, Vllm, recognise
from specrace.servers.lane import served_lane
from specrace.servers.reply import Reply, Request
from tests.servers.replies import recorded, recorded_routes, serving


def read(name: str, decode: Callable[[Sequence[int]], str], limit: int, vocab: int) -> tuple[Dialect, Reply]:
    """Ask a server that sends the recorded answer; returns the server's dialect and the reply that is read.

    `limit`: the number of tokens asked for. `vocab`: the size of the vocabulary that `decode` reads.
    """
    prompt = tuple(recorded(name)["post"]["request"]["prompt"])
    with serving(recorded_routes(name)) as address, Connection(address) as connection:
        dialect = recognise(connection)
        return dialect, ask(connection, dialect, Request(prompt, limit), decode, vocab)


def test_vllms_chunks_are_its_steps() -> None:
    tokenizer = load_tokenizer(BUNDLED_MODEL)
    dialect, reply = read("vllm", tokenizer.decode, limit=40, vocab=4160)
    assert isinstance(dialect, Vllm) and dialect.engine == "vLLM 0.32.0" and dialect.model == "tiny"
    lane = served_lane("vllm", dialect, reply, root=reply.prompt[-1] if reply.prompt else 0)
    served = lane.info.served
    assert served is not None and served.chunks_are_steps and not served.note
    assert (served.steps, served.drafted, served.accepted) == (len(reply.chunks), 25, 25)
    assert [step.accepted for step in lane.steps if step.num_draft] == [5, 5, 5, 5, 4], (
        "the last draft passes the limit"
    )
    assert len(lane.tokens) == 40 and lane.steps[-1].end == "length"
    # Five drafts had 24 tokens within the limit accepted, and all but the last gave a bonus token.
    assert sum(len(step.emitted) for step in lane.steps if step.num_draft) == 28


def test_the_request_is_the_one_that_vllm_answered() -> None:
    request = recorded("vllm")["post"]["request"]
    assert request == Vllm("", "tiny").body(Request(tuple(request["prompt"]), 40)) | {"model": request["model"]}


def test_llama_cpp_streams_tokens_and_ends_with_its_totals() -> None:
    exchange = recorded("llama-cpp")["post"]
    # The token of "The", and the end token.
    first_and_last = {504, 2}

    def decode(tokens: Sequence[int]) -> str:
        assert tokens[0] in first_and_last and tokens[-1] in first_and_last
        return "The tide comes in twice a day at the harbour of Brest."

    dialect, reply = read("llama-cpp", decode, limit=24, vocab=49152)
    assert isinstance(dialect, LlamaCpp) and dialect.engine == "llama.cpp b0-unknown"
    assert len(reply.chunks) == len(exchange["events"]) - 1 == 15
    lane = served_lane("cpp", dialect, reply, root=1)
    served = lane.info.served
    assert served is not None and not served.chunks_are_steps and "token by token" in served.note
    assert (served.steps, served.drafted, served.accepted) == (6, 16, 9)
    assert all(not step.num_draft for step in lane.steps) and lane.steps[-1].end == "eos"


def test_transformers_serve_streams_text_without_ids() -> None:
    sent = recorded("transformers")["post"]["request"]
    request = Request((1,), sent["max_tokens"], message=sent["messages"][0]["content"])
    with serving(recorded_routes("transformers")) as address, Connection(address) as connection:
        dialect = recognise(connection, sent["model"], needs_ids=False)
        # Without ids nothing is decoded, so neither `decode` nor the size of the vocabulary matters.
        reply = ask(connection, dialect, request, decode=str, vocab_size=1)
    assert isinstance(dialect, Chat) and dialect.body(request) == sent
    assert len(reply.chunks) == reply.num_tokens == 12 and reply.end == "length"
    lane = served_lane("hf", dialect, reply, root=1)
    served = lane.info.served
    assert served is not None and (served.model, served.tokens, served.first_tokens) == ("smollm2-135m", 12, 1)
    assert lane.output == reply.text and not lane.tokens
