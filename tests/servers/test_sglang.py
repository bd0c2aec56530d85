"""SGLang's protocol, imitated from its source code, because SGLang cannot run here: its two forms of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from specrace.servers.client import ask
from specrace.servers.connection import Connection
from specrace.servers.dialects import SGLang, recognise
from specrace.servers.lane import read_steps, served_lane
from specrace.servers.reply import Request
from tests.servers.replies import as_json, serving, stream

# The second and third step begin with the tokens of the step before, so a stream of new tokens looks at first like a
# stream that repeats all tokens so far.
STEPS = ((2,), (2, 3), (2, 3, 4), (5,))


def decode(tokens: Sequence[int]) -> str:
    return "".join(chr(97 + token) for token in tokens)


def events(*, sends_new: bool) -> list[Any]:
    """The events of a stream whose steps are STEPS."""
    chunks, tokens_so_far = list[Any](), list[int]()
    for number, step in enumerate(STEPS):
        tokens_so_far += step
        sent = list(step) if sends_new else list(tokens_so_far)
        meta: dict[str, Any] = {
            "completion_tokens": len(tokens_so_far), "spec_verify_ct": number + 1, "finish_reason": None,
        }  # fmt: skip
        if number == len(STEPS) - 1:
            meta["finish_reason"] = {"type": "length", "length": 7}
        chunks.append({"text": decode(sent), "output_ids": sent, "meta_info": meta})
    return chunks


@pytest.mark.parametrize("sends_new", [True, False])
def test_both_forms_of_the_stream_give_the_same_tokens(sends_new: bool) -> None:
    info = {"version": "0.5.9", "stream_interval": 1, "incremental_streaming_output": sends_new}
    routes = {
        "/v1/models": as_json({"data": [{"id": "m", "owned_by": "sglang"}]}),
        "/server_info": as_json(info),
        "/generate": stream(*events(sends_new=sends_new)),
    }
    with serving(routes) as address, Connection(address) as connection:
        dialect = recognise(connection)
        reply = ask(connection, dialect, Request((2, 3), 7), decode, 8)
    assert isinstance(dialect, SGLang) and dialect.engine == "SGLang 0.5.9"
    assert [chunk.tokens for chunk in reply.chunks] == list(STEPS)
    assert (reply.end, reply.num_tokens, reply.num_steps) == ("length", 7, 4)
    served = served_lane("s", dialect, reply, root=3).info.served
    # The chunks happen to be the steps here, but SGLang does not say that they are.
    assert served is not None and not served.chunks_are_steps and served.steps == 4
    assert "does not say how many tokens each step accepted" in read_steps(dialect, reply)[1]


def test_a_server_that_joins_steps_is_reported() -> None:
    routes = {
        "/v1/models": as_json({"data": [{"id": "m", "owned_by": "sglang"}]}),
        "/server_info": as_json({"stream_interval": 8}),
    }
    with serving(routes) as address, Connection(address) as connection:
        assert "every 8 steps (--stream-interval)" in recognise(connection).why_no_steps
