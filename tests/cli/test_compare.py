"""`compare` end to end, against servers of the tests: measured, killed, resumed, and its arguments refused.

The server `plain` decodes without drafts, the server `spec` with them, by the twin of vLLM's n-gram drafter: our copy
of it, with which `compare` also forecasts.
"""

from __future__ import annotations

import json
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.lab.compare.journal import REQUESTS
from specrace.model.chat.tokenizer import ChatTokenizer, load_tokenizer
from tests import processes
from tests.cli.conftest import ROOT
from tests.parts import FunctionTarget, markov
from tests.servers.replies import Answer, Route, as_json, serving, vllm_answering, vllm_routes

NGRAM = {"num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
SETTINGS = {"method": "vllm-ngram", "num_draft": 4, "options": NGRAM}
NUM_QUESTIONS = 8
RESULTS = ROOT / "tests" / "lab" / "compare" / "results"
MAX_NEW_TOKENS = 24


def target_of(seed: int = 1) -> FunctionTarget:
    """A target with eight tokens, whose text soon repeats itself."""
    return FunctionTarget(markov(seed, vocab=8))


@cache
def tokenizer() -> ChatTokenizer:
    return load_tokenizer(BUNDLED_MODEL)


def decode(tokens: Sequence[int]) -> str:
    return tokenizer().decode(list(tokens))


class RecordingRoute:
    """Completions of a server that records its prompts, and calls `on_prompt` with their number so far."""

    def __init__(self, route: Route, on_prompt: Any = lambda _: None) -> None:
        self.route, self.on_prompt = route, on_prompt
        self.lock = threading.Lock()
        self.prompts: list[tuple[int, ...]] = []

    def __call__(self, body: dict[str, Any]) -> Answer:
        with self.lock:
            self.prompts.append(tuple(body["prompt"]))
            count = len(self.prompts)
        self.on_prompt(count)
        return self.route(body) if callable(self.route) else self.route


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Prompts as token ids, of two categories."""
    file = tmp_path / "prompts.jsonl"
    lines = [
        {"id": f"q{n}", "category": "ab"[n % 2], "prompt_ids": [2, 3, 4, n, 2, 3, 4, 5, n]}
        for n in range(NUM_QUESTIONS)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def servers() -> Iterator[Any]:
    """A function that starts servers with these completions, and returns their --server arguments."""
    with ExitStack() as stack:

        def start(**routes: Route) -> list[str]:
            addresses = {name: stack.enter_context(serving(vllm_routes(route))) for name, route in routes.items()}
            return [word for name, address in addresses.items() for word in ("--server", f"{name}={address.url}")]

        yield start


def arguments(questions: Path, out: Path, *more: object) -> list[object]:
    return ["compare", "--questions", questions, "--out", out, "--max-new-tokens", MAX_NEW_TOKENS, *more]


def test_servers_are_compared_and_the_forecast_is_what_the_server_drafted(
    call_main: Any, servers: Any, questions: Path, tmp_path: Path
) -> None:
    plain = RecordingRoute(vllm_answering(target_of(), decode, "vanilla"))
    spec = RecordingRoute(vllm_answering(target_of(), decode, "vllm-ngram", **NGRAM))
    addresses = servers(plain=plain, spec=spec)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps(SETTINGS))
    command = arguments(questions, tmp_path / "out", *addresses, "--concurrency", "1,3", "--repetitions", 2)
    done = call_main(*command, "--settings", settings, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert [(row["server"], row["concurrency"], row["requests"]) for row in result["rows"]] == [
        ("plain", 1, 16), ("spec", 1, 16), ("plain", 3, 16), ("spec", 3, 16),
    ]  # fmt: skip
    # The rows of the server with drafts.
    for row in result["rows"][1::2]:
        assert row["tau"] > 1.5 and row["forecast"]["tau"] == row["tau"]
        # `rates`: the share of drafts of which the first, second, ... token was accepted. Only the last step may
        # differ: this server does not draft past the limit of new tokens.
        assert 0 <= row["forecast"]["accepted"] - row["accepted"] <= row["requests"] and row["rates"][0] > 0.2
        assert (row["same_texts"], row["compared_texts"]) == (16, 16)
        assert row["speedup"]["low"] <= row["speedup"]["speedup"] <= row["speedup"]["high"]
    assert {row["category"] for row in result["categories"]} == {"a", "b"}
    assert "Texts equal: 32 of 32." in result["verdict"]
    # Two concurrencies, two repetitions, a warm-up before each.
    assert len(plain.prompts) == len(spec.prompts) == 4 * (NUM_QUESTIONS + 1)
    again = call_main(*command, "--settings", settings, "--resume")
    assert again.returncode == 0 and "spec" in again.stdout and "16 of 16" in again.stdout
    assert len(spec.prompts) == 4 * (NUM_QUESTIONS + 1), "a finished comparison must ask nothing"
    assert json.loads((tmp_path / "out" / "result.json").read_text())["rows"] == result["rows"]
    assert "holds a comparison; add --resume" in call_main(*command).stderr
    refused = call_main(*command, "--resume", "--ask-once", "--concurrency", "1")
    assert refused.returncode == 2 and "other settings (concurrency, ask_once)" in refused.stderr


def test_a_comparison_that_is_killed_goes_on_and_asks_nothing_twice(
    call_main: Any, servers: Any, questions: Path, tmp_path: Path
) -> None:
    process: Any = None
    started = threading.Event()

    def kill_at(count: int) -> None:
        if count == 6 and not killed.is_set():
            killed.set()
            started.wait()
            process.kill()

    killed = threading.Event()
    plain = RecordingRoute(vllm_answering(target_of(), decode, "vanilla"))
    spec = RecordingRoute(vllm_answering(target_of(), decode, "vllm-ngram", **NGRAM), kill_at)
    command = arguments(questions, tmp_path / "out", *servers(plain=plain, spec=spec), "--concurrency", 2)
    command += ["--repetitions", 1, "--json"]
    process = processes.start(["-m", "specrace", *command])
    started.set()
    assert process.wait() == -9 and killed.is_set()
    lines = (tmp_path / "out" / REQUESTS).read_text().splitlines()
    # The answers of `spec` that were kept; warm-ups have negative numbers.
    kept_rows = [row for row in map(json.loads, lines) if row.get("block", [""])[0] == "spec" and row["number"] >= 0]
    assert 0 < len(kept_rows) < NUM_QUESTIONS
    done = call_main(*command, "--resume")
    assert done.returncode == 0, done.stderr
    spec_row = json.loads(done.stdout)["rows"][1]
    assert spec_row["requests"] == NUM_QUESTIONS and spec_row["interrupted_blocks"] == 1
    assert spec_row["total_tokens_per_s"] is None
    prompts = [json.loads(line)["prompt_ids"] for line in questions.read_text().splitlines()]
    times_sent = Counter(spec.prompts)
    for row in kept_rows:
        assert times_sent[tuple(prompts[row["number"]])] == 1, "a finished request must not be sent again"
    assert Counter(plain.prompts)[tuple(prompts[0])] == 1


def test_each_question_is_asked_once(call_main: Any, servers: Any, questions: Path, tmp_path: Path) -> None:
    spec = RecordingRoute(vllm_answering(target_of(), decode, "vanilla"))
    addresses = servers(plain=vllm_answering(target_of(), decode, "vanilla"), spec=spec)
    command = arguments(
        questions, tmp_path / "out", *addresses, "--concurrency", "1,2", "--repetitions", 2, "--ask-once"
    )
    done = call_main(*command, "--json")
    assert done.returncode == 0, done.stderr
    prompts = [tuple(json.loads(line)["prompt_ids"]) for line in questions.read_text().splitlines()]
    assert [Counter(spec.prompts)[prompt] for prompt in prompts] == [1] * NUM_QUESTIONS
    assert [row["requests"] for row in json.loads(done.stdout)["rows"]] == [4] * 4


def test_a_server_that_fails_again_and_again_ends_the_comparison_and_keeps_what_is_finished(
    call_main: Any, servers: Any, questions: Path, tmp_path: Path
) -> None:
    answer = vllm_answering(target_of(), decode, "vanilla")
    is_broken = threading.Event()

    def broken(body: dict[str, Any]) -> Answer:
        return as_json({"error": {"message": "out of memory"}}, 500) if is_broken.is_set() else answer(body)

    spec = RecordingRoute(broken, lambda count: is_broken.set() if count == 5 else None)
    command = arguments(questions, tmp_path / "out", *servers(plain=answer, spec=spec), "--repetitions", 1, "--json")
    done = call_main(*command)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "The server spec answers with status 500: out of memory." in done.stderr and "--resume" in done.stderr
    is_broken.clear()
    spec.on_prompt = lambda _: None
    done = call_main(*command, "--resume")
    assert done.returncode == 0 and [row["failed"] for row in json.loads(done.stdout)["rows"]] == [0, 0]


def test_logs_and_text_prompts_are_questions_too(call_main: Any, servers: Any, tmp_path: Path) -> None:
    answer = vllm_answering(target_of(), decode, "vanilla")
    addresses = servers(plain=answer, spec=answer)
    log, text = tmp_path / "log.jsonl", tmp_path / "text.jsonl"
    log.write_text("".join(json.dumps({"prompt_ids": [2, 3, n], "output_ids": [4]}) + "\n" for n in range(3)))
    text.write_text(json.dumps({"prompt": "Bread rises because"}) + "\n")
    for file, count in ((log, 3), (text, 1)):
        command = arguments(file, tmp_path / file.stem, *addresses, "--repetitions", 1, "--tokenizer", BUNDLED_MODEL)
        done = call_main(*command, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"][0]["requests"] == count


# Answers every prompt with the same tokens, one at a time, as vLLM would; its second argument is a file with them.
SERVER = """
    import json, sys
    from http.server import BaseHTTPRequestHandler, HTTPServer
    tokens, text = json.load(open(sys.argv[2]))
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer("application/json", json.dumps({"data": [{"id": "m", "owned_by": "vllm"}]}))
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            last = len(tokens) - 1
            choices = [
                {"text": "" if i < last else text, "token_ids": [t], "finish_reason": None if i < last else "length"}
                for i, t in enumerate(tokens)
            ]
            events = [{"choices": [choice]} for choice in choices]
            self.answer("text/event-stream", "".join("data: " + json.dumps(event) + "\\n\\n" for event in events))
        def answer(self, kind, body):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body.encode())
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_servers_are_launched_one_at_a_time_and_stopped(call_main: Any, questions: Path, tmp_path: Path) -> None:
    tokens = [2, 3, 4, 5]
    (tmp_path / "server.py").write_text(textwrap.dedent(SERVER))
    (tmp_path / "answer.json").write_text(json.dumps([tokens, decode(tokens)]))
    start = f"{sys.executable} -S {tmp_path / 'server.py'} {{port}} {tmp_path / 'answer.json'}"
    launches = ["--launch", f"plain={start}", "--launch", f"spec={start}"]
    done = call_main(*arguments(questions, tmp_path / "out", *launches, "--repetitions", 1, "--json", "--plots"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (tmp_path / "out" / "plots" / "rates.svg").exists()
    assert [(row["server"], row["requests"], row["tau"]) for row in result["rows"]] == [
        ("plain", NUM_QUESTIONS, 1.0), ("spec", NUM_QUESTIONS, 1.0),
    ]  # fmt: skip
    assert "Texts equal: 8 of 8." in result["verdict"] and (tmp_path / "out" / "spec.log").exists()
    broken = arguments(questions, tmp_path / "other", *launches[:2], "--launch", "spec=no-such-program {port}")
    done = call_main(*broken, "--repetitions", 1)
    assert done.returncode == 2 and "The server spec ended before it answered (no-such-program: " in done.stderr


def test_results_of_load_generators_need_no_server(call_main: Any) -> None:
    results = [f"{name}={RESULTS / file}" for name, file in (("a", "aiperf.json"), ("b", "vllm-bench-serve.json"))]
    command = ["compare", *(word for result in results for word in ("--results", result))]
    done = call_main(*command)
    assert done.returncode == 0 and "vllm bench serve" in done.stdout and "1.00x" in done.stdout
    rows = json.loads(call_main(*command, "--json").stdout)["load_tests"]
    assert [(row["name"], row["tool"]) for row in rows] == [("a", "aiperf"), ("b", "vllm bench serve")]
    done = call_main("compare", "--results", "no-such.json")
    assert done.returncode == 2 and "no-such.json cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--server", "a=http://127.0.0.1:9"], "Give two servers or more"),
        (["--server", "a=http://127.0.0.1:9"] * 2, "Two servers are called a"),
        (["--server", "a=127.0.0.1:9"], "is no address of a server"),
        (["--concurrency", "0"], "--concurrency is '0'"),
        (["--concurrency", "1,,4"], "--concurrency is '1,,4'"),
        (["--concurrency", "9"], "--concurrency 9 needs 9 questions"),
        (["--repetitions", "0"], "--repetitions is 0"),
        (["--limit", "0"], "--limit is 0"),
        (["--questions", "no-such.jsonl"], "no-such.jsonl cannot be read"),
        (["--questions", "no-such.txt"], "no-such.txt cannot be read"),
        (["--questions", "no-such-log"], "no-such-log"),
        (["--launch", "x=vllm serve m"], "--launch"),
        (["--cost-curve", "none-such"], "There is no cost curve"),
        (["--settings", "none-such.json"], "none-such.json"),
        (["--out", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_a_bad_argument_prints_one_sentence(
    call_main: Any, questions: Path, tmp_path: Path, more: list[str], sentence: str
) -> None:
    servers = [] if "--server" in more else ["--server", "a=http://127.0.0.1:9", "--server", "b=http://127.0.0.1:9"]
    done = call_main(*arguments(questions, tmp_path / "out", *servers, *more))
    assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
