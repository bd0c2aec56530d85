"""The routes for logs, over loopback: the choices that they list, their answers, and the deletion of every log."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.core.settings import MAX_PAGE_LANES
from specrace.lab.scoring.score import scorable_lanes
from specrace.ui.api.log_routes import DEFAULT_LANES, parse_log_request
from specrace.ui.helper.other_work import SCORED
from specrace.ui.races.model_choices import ModelChoices
from specrace.ui.visitor_limits import MAX_LOG_BYTES
from tests.lab.parts import COPYING, FRESH
from tests.ui.served import Answer, Served, serving
from tests.ui.waiting import LONG_S, wait_until

PATH, ADVICE = "/gradio_api/logs", "/gradio_api/advice"
# A log of one request, whose output copies nothing from its prompt.
LOG = json.dumps(FRESH).encode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--uploads-per-hour", "1000") as app:
        yield app


def read_lines(answer: Answer) -> list[Any]:
    """Check that a response is lines of JSON; returns the parsed lines."""
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_route_lists_choices_and_limits(served: Served) -> None:
    offered = served.ask("GET", PATH).json()
    assert offered["tokenizers"][0] == "tiny" and "characters" in offered["tokenizers"]
    assert set(offered["chosen"]) <= set(offered["lanes"])
    # `engines` are the lanes that reproduce the drafters of other engines.
    assert {*offered["lanes"], *offered["engines"], "vanilla"} == set(scorable_lanes())
    assert "vllm-ngram" in offered["engines"] and "trie" in offered["lanes"]
    assert offered["limits"] == {"bytes": MAX_LOG_BYTES, "requests": 2000, "seconds": 120.0, "lanes": MAX_PAGE_LANES}


def test_a_scored_log_is_deleted_and_noted_in_races(served: Served) -> None:
    assert served.worker is not None
    began = time.monotonic()
    # The query's form of "../../<b>log.jsonl".
    name = "..%2F..%2F%3Cb%3Elog.jsonl"
    (*_, last) = read_lines(served.ask("POST", f"{PATH}?name={name}&lanes=trie", LOG))
    assert last["scores"]["outputs"] == 1 and [lane["lane"] for lane in last["scores"]["lanes"]] == ["trie"]
    # Races of that time say that a log was scored beside them.
    assert SCORED in served.worker.other_work.describe_since(began)
    # The file is deleted once the answer has been sent.
    wait_until(lambda: served.files() == [])
    (refusal,) = read_lines(served.ask("POST", f"{PATH}?name={name}", b"hello"))
    assert refusal["error"].startswith("_..__b_log.jsonl holds no request")
    wait_until(lambda: served.files() == [])


def test_a_log_gets_advice_and_is_deleted(served: Served) -> None:
    row = json.dumps(COPYING).encode()
    (*_, last) = read_lines(
        served.ask("POST", f"{ADVICE}?name=log.jsonl&curve=h100-8b&batch=16", b"\n".join([row] * 4))
    )
    assert last["advice"]["requests"] == 4
    wait_until(lambda: served.files() == [])
    assert any("h100, 8 billion" in sentence for sentence in last["advice"]["engines"][0]["text"])
    answer = served.ask("POST", f"{ADVICE}?curve=ghost", row)
    assert answer.status == 400 and answer.text.startswith("There is no cost curve 'ghost' here")
    assert served.ask("POST", ADVICE, b"", Content_Length=str(MAX_LOG_BYTES + 1)).status == 413
    assert served.ask("GET", PATH).json()["advice"]["engines"][0] == ["vllm", "vLLM"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"tokenizer": "/etc/passwd"}, "no tokenizer '/etc/passwd' here; choose from tiny"),
        ({"lanes": "trie,ghost"}, "no lane 'ghost'; choose from"),
        ({"lanes": "jacobi"}, "lane 'jacobi' cannot be scored"),
        ({"lanes": ""}, "0 lanes were chosen"),
        ({"lanes": ",".join(scorable_lanes())}, "choose 1 to 6"),
    ],
)
def test_invalid_queries_get_one_sentence(query: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_log_request(query, ModelChoices(offered={"tiny": "tiny"}))


def test_ids_are_decoded_only_with_a_named_tokenizer() -> None:
    """A log's token ids are shown as text only if the visitor says which tokenizer made them."""
    models = ModelChoices(offered={"tiny": "here", "other": "there"})
    expected = {"lanes": list(DEFAULT_LANES), "columns": "", "name": "tiny", "tokenizer": "here", "decodes_ids": False}
    assert parse_log_request({}, models) == expected
    named = {"name": "other", "tokenizer": "there", "decodes_ids": True}
    assert parse_log_request({"tokenizer": "other"}, models) == expected | named


def test_logs_that_are_too_large_or_too_many_are_refused(served: Served) -> None:
    assert served.ask("POST", PATH, b"", Content_Length=str(MAX_LOG_BYTES + 1)).status == 413
    with serving("--uploads-per-hour", "1") as limited:
        assert limited.ask("POST", PATH, LOG).status == 200
        answer = limited.ask("POST", PATH, LOG)
        assert answer.status == 429 and "More than 1 files" in answer.text


def test_scoring_stops_when_the_page_disconnects(served: Served) -> None:
    assert served.worker is not None
    # Scoring such an output takes far longer than this test.
    row = json.dumps({"prompt_ids": list(range(2000)), "output_ids": list(range(500_000))}).encode()
    head = f"POST {PATH}?lanes=fusion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(row)}\r\n\r\n"
    scorer = served.worker.other_work.logs
    with socket.create_connection(("127.0.0.1", served.port), timeout=LONG_S) as connection:
        connection.sendall(head.encode() + row)
        wait_until(lambda: scorer.busy)
    wait_until(lambda: not scorer.busy)
    wait_until(lambda: served.files() == [])
    # The helper process ended with the work; the next log gets a new one.
    assert read_lines(served.ask("POST", PATH, LOG))[-1]["scores"]["outputs"] == 1
