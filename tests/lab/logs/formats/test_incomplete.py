"""Files without requests or outputs: the message says what the file is and what to give instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.parts import write

ASK = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"backend": "vllm", "input_lens": [4], "output_lens": [5], "generated_texts": ["b"]}, "vllm bench serve"),
        ({"metadata": {"x_request_id": "r"}, "metrics": {"request_latency": {"value": 1}}}, "--export-level raw"),
        ({"error_msg": "", "number_input_tokens": 5, "number_output_tokens": 4}, "a result of LLMPerf"),
        ({"question_id": 81, "category": "w", "turns": ["a", "b"]}, "questions without answers"),
        ({"question_id": 81, "choices": [{"index": 0, "turns": ["a", "b"]}]}, "answers without questions"),
        ({"message_id": "m", "parent_id": None, "text": "a", "role": "prompter"}, "one message of a tree"),
        ({"prompt": '["a"]', "response_a": '["b"]', "response_b": '["c"]'}, "Chatbot Arena's pairs"),
        ({"data": ["When?", "Be brief."], "fn_index": 3, "session_hash": "s"}, "a call of a Gradio app"),
        ({"request_id": "q", "request_body": {}, "response_body": {}, "signed_body_url": "u"}, "--include-body"),
        ({"object": "response", "output": [{"type": "message", "content": []}]}, "has no request and no token ids"),
        ({"request": {"input": "a"}, "response": {"data": [{"embedding": [0.1]}]}}, "the response is embeddings"),
        ({"request": {"query": "a"}, "response": {"results": [{"relevance_score": 1}]}}, "a ranking of documents"),
        ({"choices": [{"index": 0, "delta": {"content": "b"}}]}, "one chunk of a stream"),
    ],
)
def test_a_file_without_requests_says_what_it_is(row: Any, reason: str, tmp_path: Path) -> None:
    file = TranscriptFile(write(tmp_path / "log.jsonl", row), skip_bad=True)
    assert list(file) == []
    assert reason in " ".join(file.faults)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"id": "1", "traceId": "t", "type": "SPAN", "input": "a", "output": "b"},
            "an observation of the type GENERATION",
        ),
        (
            {"id": "1", "user_id": None, "bookmarked": False, "input": [ASK], "output": "b", "observations": ["2"]},
            "an observation of the type GENERATION",
        ),
        (
            {"id": "1", "run_type": "chain", "inputs": {"input": "a"}, "outputs": {"output": "b"}},
            "a run of the type llm",
        ),
        ({"event": "$ai_span", "properties": {}}, "an event $ai_generation"),
        ({"call_type": "aembedding", "messages": [ASK], "response": {}}, "a call that generates text"),
        ({"span_attributes": {"type": "task"}, "input": "a", "output": "b"}, "a span of the type llm"),
        ({"meta": {"kind": "agent", "input": {"value": "a"}, "output": {}}}, "a span of the kind llm"),
        ({"op_name": "weave:///e/p/op/ask:v0", "inputs": {"q": "a"}, "output": "b"}, "a call of a model's library"),
        ({"event": "request.received", "rid": "r", "obj": {"text": "a"}}, "request.received and not request.finished"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "GET"}]}]}]}, "no span has the messages"),
        ({"custom_id": "1", "params": {"messages": [ASK]}}, "a batch's requests only"),
    ],
)
def test_a_file_without_generations_says_so(row: Any, reason: str, tmp_path: Path) -> None:
    file = TranscriptFile(write(tmp_path / "log.jsonl", row))
    assert list(file) == []
    assert reason in " ".join(file.remarks.left_out)


def test_the_observations_that_a_trace_holds_are_read(tmp_path: Path) -> None:
    generation = {"id": "2", "traceId": "1", "type": "GENERATION", "input": "a", "output": "b"}
    trace = {"id": "1", "userId": None, "bookmarked": False, "input": "c", "output": "d", "observations": [generation]}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace, indent=1))
    (transcript,) = TranscriptFile(path, tokenize=lambda text: list(text.encode()))
    assert (transcript.prompt, transcript.output) == ((97,), (98,))
