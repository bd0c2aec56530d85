"""The endpoints for programs and agents: their listing, their answers, and how invalid arguments are refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from specrace.core.bundled import RECORDINGS
from specrace.core.settings import SETTINGS
from specrace.lab.scoring.score import scorable_lanes
from specrace.ui.api.schema import HELP
from specrace.ui.helper.log_advice import TITLES
from specrace.ui.races.race_request import OFFERED
from specrace.ui.server.guard import MAX_BODY
from specrace.ui.server.visitors import NOT_UPLOADED
from specrace.workbench import Workbench
from tests.lab.parts import COPYING, FRESH, run, write
from tests.test_docs import DOCS, fenced
from tests.ui.helper.test_log_scores import without_times
from tests.ui.served import LANES, Served, serving
from tests.ui.test_front_door import refusal
from tests.ui.waiting import LONG_S

QUESTION = "Why does bread rise?"
NAMES = ("race", "retrieve", "score", "recommend")
# A file as a client names it in a request.
FILE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
# A log of two requests: the output of one copies its prompt, the other's does not.
LOG = "\n".join(json.dumps(row) for row in (COPYING, FRESH))


@pytest.fixture(scope="module")
def served(bundled: Workbench) -> Iterator[Served]:
    """The app with the bundled model and MCP enabled."""
    with serving("--mcp", "--races-per-minute", "1000", "--uploads-per-hour", "1000", workbench=bundled) as app:
        yield app


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Client]:
    connected = Client(f"http://127.0.0.1:{served.port}", verbose=False, analytics_enabled=False)
    yield connected
    connected.close()


def error_of(app: Served, name: str, **arguments: Any) -> str:
    """Call an endpoint that refuses the call; returns its error message, from the first response or from the result."""
    path = f"/gradio_api/call/v2/{name}"
    answer = app.ask("POST", path, arguments)
    if answer.status == 200:
        event, _, data = app.ask("GET", f"{path}/{answer.json()['event_id']}").text.strip().partition("\n")
        assert event == "event: error"
        return str(json.loads(data.removeprefix("data: "))["error"])
    assert answer.status == 400
    return str(answer.json()["error"])


def test_the_api_lists_each_endpoint_with_parameter_names_types_and_help(served: Served, client: Client) -> None:
    listed = served.ask("GET", "/gradio_api/info").json()
    assert listed["unnamed_endpoints"] == {} and list(listed["named_endpoints"]) == [f"/{name}" for name in NAMES]
    assert client.view_api(return_format="dict")["named_endpoints"].keys() == listed["named_endpoints"].keys()
    for name, endpoint in listed["named_endpoints"].items():
        about = endpoint["description"]
        assert (
            about.startswith(("Race", "Find", "Score", "Recommend")) and "Args" not in about and about.endswith(".")
        ), name
        for parameter in endpoint["parameters"]:
            assert parameter["python_type"]["type"] != "Any" and parameter["python_type"]["description"]
            assert parameter["label"] == parameter["parameter_name"]
        assert endpoint["returns"][0]["python_type"]["type"] in ("dict(str, Any)", "list[dict(str, Any)]")


def test_the_race_endpoint_has_the_settings_defaults_bounds_and_help(served: Served) -> None:
    listed = served.ask("GET", "/gradio_api/info").json()["named_endpoints"]["/race"]["parameters"]
    by_name = {parameter["parameter_name"]: parameter for parameter in listed}
    assert set(by_name) == {"question", "lanes", *OFFERED, "options", "model", "dtype", "files"}
    assert not by_name["question"]["parameter_has_default"]
    assert all(by_name[name]["parameter_has_default"] for name in OFFERED)
    for name in OFFERED:
        setting, parameter = SETTINGS[name], by_name[name]
        assert parameter["parameter_default"] == ("auto" if setting.default is None else setting.default)
        assert parameter["python_type"]["description"].startswith(setting.help)
        if not setting.choices:
            # A setting without a default may also be "auto"; its number is then the first of two types.
            number = parameter["type"] if setting.default is not None else parameter["type"]["anyOf"][0]
            assert (number["minimum"], number["maximum"]) == setting.bounds(shared=True)
    assert by_name["files"]["python_type"]["type"] == "list[filepath]"
    assert set(HELP) >= set(by_name) - set(OFFERED)


def test_a_client_can_race_and_retrieve(client: Client, tmp_path: Path) -> None:
    result = client.predict(QUESTION, lanes=["trie"], max_new_tokens=8, passages=2, api_name="/race")
    assert [lane["lane"] for lane in result["lanes"]] == ["vanilla", "trie"]
    assert all(lane["identical"] and lane["tokens"] == 8 for lane in result["lanes"])
    hits = client.predict(QUESTION, passages=2, api_name="/retrieve")
    for hit, passage in zip(hits, result["passages"], strict=True):
        assert hit["document"] == passage["document"] == "bread.md" and hit["text"] == passage["text"]
        assert hit["end"] - hit["start"] == len(hit["text"]) and hit["score"] == pytest.approx(
            passage["score"], abs=1e-3
        )
    start, end = hits[0]["evidence"][0]
    assert "rise" in hits[0]["text"][start:end]
    (tmp_path / "owls.md").write_text("# Owls\n\nOwls hear mice under the snow.")
    files = [handle_file(str(tmp_path / "owls.md"))]
    (from_upload,) = client.predict("What do owls hear?", files=files, api_name="/retrieve")
    assert from_upload["document"] == "owls.md" and "mice" in from_upload["text"]
    race_on_upload = client.predict("What do owls hear?", ["trie"], max_new_tokens=4, files=files, api_name="/race")
    assert [passage["document"] for passage in race_on_upload["passages"]] == ["owls.md"]


def test_the_score_endpoint_returns_what_the_command_line_prints(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "t.jsonl", COPYING, FRESH)
    options = ("--lanes", "trie,vllm-ngram", "--by", "category", "--option", "trie.n=5", "--json")
    assert run(path, *options) == 0
    expected = json.loads(capsys.readouterr().out)["groups"]
    arguments = {"lanes": ["trie", "vllm-ngram"], "options": {"trie": {"n": 5}}, "api_name": "/score"}
    for scores in (client.predict(log=handle_file(str(path)), **arguments), client.predict(text=LOG, **arguments)):
        assert without_times(scores["groups"]) == without_times(expected)
        assert scores["outputs"] == 2 and "requests" not in scores
    table = client.predict(text="q,a\nthe moon,pulls\n", columns="prompt=q,output=a", api_name="/score")
    assert (table["format"], table["outputs"], table["tokenizer"]) == ("csv", 1, "tiny")


def test_the_recommend_endpoint_returns_settings_ready_to_paste(client: Client) -> None:
    result = client.predict(text=LOG, engine="vllm", cost_curve="h100-8b", batch=4, api_name="/recommend")
    (vllm,) = result["engines"]
    assert (vllm["engine"], result["requests"]) == ("vllm", 2) and "tried" not in result
    assert "little evidence" in " ".join(vllm["not_tested"]) and vllm["text"][0].startswith("On these 2 requests")
    assert "speculative" in vllm["export"]["settings"] and vllm["recommendation"]["lane"] in ("vanilla", "vllm-ngram")
    all_engines = client.predict(text=LOG, api_name="/recommend")["engines"]
    assert [engine["engine"] for engine in all_engines] == list(TITLES)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nothing", {}, "no endpoint of this name; GET /gradio_api/info lists"),
        ("race", {}, "No value provided for required argument: question"),
        ("race", {"question": QUESTION, "ghost": 1}, "Parameter `ghost` is not a valid"),
        ("race", {"question": 5}, "The question is not text"),
        ("race", {"question": QUESTION, "max_new_tokens": "many"}, "New tokens: 'many' cannot be used"),
        ("race", {"question": QUESTION, "files": "/etc/passwd"}, NOT_UPLOADED),
        ("race", {"question": QUESTION, "lanes": ["<b>"]}, "There is no lane '<b>'"),
        ("retrieve", {"question": " "}, "Type a question"),
        ("retrieve", {"question": QUESTION, "passages": 13}, "from 0 to 12"),
        ("retrieve", {"question": QUESTION, "files": [{"path": "/etc/passwd"}]}, NOT_UPLOADED),
        ("score", {}, "Give a log or its text"),
        ("score", {"text": LOG, "log": "x"}, "one of the two"),
        ("score", {"text": 5}, "The text of a log is a string"),
        ("score", {"log": "/etc/passwd"}, NOT_UPLOADED),
        ("score", {"text": "hello"}, "text holds no request that can be scored; this is not JSON"),
        ("score", {"text": "a,b"}, "text holds no request that can be scored; this is not JSON"),
        ("score", {"text": LOG, "lanes": "trie"}, "not a list of names"),
        ("score", {"text": LOG, "lanes": ["jacobi"]}, "cannot be scored; choose from vanilla"),
        ("score", {"text": LOG, "lanes": list(scorable_lanes())}, "choose 1 to 6"),
        ("score", {"text": LOG, "options": {"trie": {"n": -1}}}, "trie.n"),
        ("score", {"text": LOG, "options": [1]}, "options are not"),
        ("score", {"text": LOG, "columns": 1}, "are strings"),
        ("score", {"text": LOG, "tokenizer": "/etc"}, "There is no tokenizer"),
        ("recommend", {}, "Give a log or its text"),
        ("recommend", {"text": LOG, "engine": "<b>"}, "There is no engine '<b>'; choose from vllm"),
        ("recommend", {"text": LOG, "cost_curve": "/etc/passwd"}, "no cost curve '/etc/passwd'"),
        ("recommend", {"text": LOG, "batch": 3}, "batch size is '3'; choose from 1, 4"),
        ("recommend", {"text": LOG, "tokenizer": 5}, "are strings"),
        (
            "score",
            {"text": LOG, "lanes": ["lookahead"], "options": {"lookahead": {"n": 16, "window": 64, "guesses": 64}}},
            "stay below 512",
        ),
    ],
)
def test_invalid_arguments_get_one_sentence(served: Served, name: str, arguments: dict[str, Any], words: str) -> None:
    sentence = error_of(served, name, **arguments)
    assert words in sentence and sentence.endswith(".") and "\n" not in sentence


def test_another_visitors_files_are_refused(served: Served) -> None:
    (path,) = replace(served, source="127.0.0.2").upload({"log.jsonl": LOG.encode()}).json()
    for file in (path, {"path": path, "meta": {"_type": "gradio.FileData"}}):
        assert error_of(served, "score", log=file) == NOT_UPLOADED
        assert error_of(served, "retrieve", question=QUESTION, files=[file]) == NOT_UPLOADED


def test_endpoints_enforce_the_servers_limits(bundled: Workbench) -> None:
    with serving("--races-per-minute", "1", "--uploads-per-hour", "1", workbench=bundled) as app:
        limited_client = Client(f"http://127.0.0.1:{app.port}", verbose=False, analytics_enabled=False)
        limited_client.predict(QUESTION, api_name="/retrieve")
        assert "started 1 retrievals within a minute" in error_of(app, "retrieve", question=QUESTION)
        limited_client.predict(text=LOG, api_name="/score")
        assert "More than 1 files" in error_of(app, "score", text=LOG)
        with pytest.raises(AppError, match="from 1 to 512"):
            limited_client.predict(QUESTION, max_new_tokens=513, api_name="/race")
        limited_client.close()
        # No refused race was started and then stopped.
        assert 'specrace_races_total{outcome="stopped"} 0.0' in app.ask("GET", "/metrics").text


def test_the_example_in_the_docs_runs(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ((_, example),) = [block for block in fenced(DOCS / "api.md") if block[0] == "python"]
    assert "http://localhost:7860" in example
    variables: dict[str, Any] = {}
    exec(compile(example.replace("7860", str(served.port)), "api.md", "exec", dont_inherit=True), variables)
    assert [lane["lane"] for lane in variables["race"]["lanes"]] == ["vanilla", "trie", "fusion"]
    # The keys are the names of the example's variables.
    assert variables["own"][0]["document"] == "owls.md" and variables["rows"]["trie"] > 1.0
    assert variables["best"]["engines"][0]["engine"] == "vllm"
    assert "trie" in capsys.readouterr().out
    variables["client"].close()


def test_an_events_answer_is_read_once(served: Served) -> None:
    path = "/gradio_api/call/v2/retrieve"
    event = f"{path}/{served.ask('POST', path, {'question': QUESTION}).json()['event_id']}"
    assert served.ask("GET", event).text.startswith("event: complete")
    # Gradio may still hold the event whose answer was read; the other two addresses never had an event.
    for address in (event, f"{path}/zzz", "/gradio_api/call/retrieve/zzz"):
        answer = served.ask("GET", address)
        sentence = "There is no such event, or its answer was read already; start another."
        assert (answer.status, answer.json()) == (404, {"error": sentence})


def with_mcp_session(app: Served, ask: Callable[[ClientSession], Awaitable[Any]]) -> Any:
    """Open an MCP session, and return the result of calling `ask` with it."""

    async def connect() -> Any:
        async with (
            streamable_http_client(f"http://127.0.0.1:{app.port}/gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await ask(session)

    return asyncio.run(connect())


def test_mcp_lists_the_endpoints_as_tools(served: Served) -> None:
    tools = {tool.name: tool for tool in with_mcp_session(served, ClientSession.list_tools).tools}
    assert tuple(tools) == NAMES
    for name, tool in tools.items():
        listed = served.ask("GET", "/gradio_api/info").json()["named_endpoints"][f"/{name}"]
        assert set(tool.inputSchema["properties"]) == {
            parameter["parameter_name"] for parameter in listed["parameters"]
        }
        assert tool.description.startswith(listed["description"]) and "Returns: " in tool.description
        assert all(schema["description"] for schema in tool.inputSchema["properties"].values())
    assert tools["retrieve"].inputSchema["required"] == ["question"]
    assert tools["score"].inputSchema["properties"]["log"]["type"] == "string"


def test_mcp_tools_return_results_or_an_error_message(served: Served) -> None:
    (path,) = served.upload({"log.jsonl": LOG.encode()}).json()
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("retrieve", {"question": QUESTION, "passages": 1}, ""),
        ("score", {"log": path, "lanes": ["trie"]}, ""),
        ("retrieve", {"question": " "}, "Type a question first."),
        ("retrieve", {"question": QUESTION, "files": ["/etc/passwd"]}, NOT_UPLOADED),
        ("retrieve", {"question": QUESTION, "files": ["http://192.0.2.1/a.md"]}, NOT_UPLOADED),
        # An MCP client with access to this path would upload the file; the server must not read it.
        ("race", {"question": QUESTION, "options": {"trie": FILE}}, NOT_UPLOADED),
        ("retrieve", {"question": QUESTION, "passages": 50}, "Input validation error: 50 is greater"),
        (
            "race",
            {"question": QUESTION, "bogus": 1},
            "Parameter `bogus` is not a valid key-word argument; tools/list has",
        ),
        ("ghost", {}, "Unknown tool"),
    ]

    async def ask(session: ClientSession) -> list[Any]:
        return [await session.call_tool(name, arguments) for name, arguments, _ in calls]

    answers = with_mcp_session(served, ask)
    for (name, _, words), answer in zip(calls, answers, strict=True):
        assert answer.content[0].text.startswith(words) and answer.isError == bool(words), name
    (hit,) = json.loads(answers[0].content[0].text)
    assert hit["document"] == "bread.md" and "rise" in hit["text"]
    assert json.loads(answers[1].content[0].text)["outputs"] == 2


def test_mcp_has_tools_only_and_the_same_guards_as_other_routes(served: Served) -> None:
    path, ping = "/gradio_api/mcp/", {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    assert served.ask("POST", path, ping, **accept).status == 200
    assert served.ask("POST", path, ping, Origin="http://evil.example", **accept).status == 403
    assert served.ask("POST", path, ping, Host="evil.example", **accept).status == 400
    assert served.ask("POST", path, {"x": "y" * MAX_BODY}, **accept).status == 413
    damaged = served.ask("POST", path, b'{"x": "\xff"}', **accept)
    assert (damaged.status, damaged.text) == (400, "The body is not UTF-8 text; send JSON in UTF-8.")
    for route in ("sse", "messages/", "messages/?session_id=1"):
        assert served.ask("GET", path + route).status == 404 and served.ask("POST", path + route, {}).status == 404

    async def read(session: ClientSession) -> str:
        try:
            return str(await session.read_resource(AnyUrl("file:///etc/passwd")))
        except McpError as error:
            return str(error)

    assert with_mcp_session(served, read) == "This server has tools only."


def test_a_tool_call_stops_when_its_caller_disconnects() -> None:
    parameters = {"name": "race", "arguments": {"question": "Why?", "lanes": LANES}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
    head = "POST /gradio_api/mcp/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += "Accept: application/json, text/event-stream\r\n"
    with serving("--mcp") as app:
        with app.connect_raw() as connection:
            body = json.dumps(call).encode()
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert app.workbench.begun.wait(LONG_S) and not app.workbench.ended.is_set()
        assert app.workbench.ended.wait(LONG_S)


def test_mcp_is_refused_in_a_replay_or_without_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = str(next(RECORDINGS.glob("*.jsonl")))
    assert "--mcp offers nothing with --replay" in refusal(["--mcp", "--replay", recording], capsys)
    monkeypatch.setattr("specrace.cli.app.find_spec", lambda _: None)
    assert "install specrace[mcp]" in refusal(["--mcp"], capsys)
