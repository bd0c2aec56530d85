"""Servers on the page: visitors race beside those that the operator named, and cannot make the page call others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from specrace.cli import app
from specrace.cli.shared.servers import named_servers
from specrace.core.errors import InputError
from specrace.core.events import LEFT_OUT, Event, Finished, Started, Step
from specrace.engine.race import never, race
from specrace.engine.spec import RaceSpec
from specrace.ui.page.events import PageEvents
from specrace.ui.page.settings_panel import DEFAULTS
from specrace.ui.races import race_request
from specrace.ui.races.backend import Backend
from specrace.ui.races.named_servers import HEALTH_S, NamedServers
from specrace.ui.races.worker import Worker
from specrace.workbench import PreparedRace, Workbench
from tests.servers.replies import Answer, as_json, serving, vllm_answering, vllm_routes
from tests.servers.test_race import NGRAM, PROMPT, SPEC, decode, make_target

# From the tests of such races: NGRAM, options of the drafter that plays vLLM's; PROMPT, token ids; SPEC, a race of
# vanilla and the trie; `make_target`, a target without a model, whose tokens `decode` turns into text.
SETTINGS = {name: DEFAULTS[name] for name in race_request.OFFERED}
URL = "http://127.0.0.1:9/v1"
# (argument of `Backend.read_request`, a value that a client could send so that the server calls an address).
ATTEMPTS: list[tuple[str, Any]] = [
    ("servers", [URL]),
    ("servers", URL),
    ("servers", [f"own={URL}"]),
    ("servers", [f"vllm={URL}"]),
    ("servers", [f"vllm#{URL}"]),
    ("servers", ["vllm", f"vllm@{URL}"]),
    ("servers", ["vllm", ["vllm", URL]]),
    ("servers", [{"name": "vllm", "url": URL}]),
    ("servers", {"vllm": URL}),
    ("servers", {"vllm": {"url": URL, "key": "k"}}),
    ("servers", ["VLLM"]),
    ("servers", ["vllm\n"]),
    ("servers", ["vllm", "//127.0.0.1:9"]),
    ("servers", [0]),
    ("servers", 1),
    ("servers", ["file:///etc/passwd"]),
    ("servers", ["169.254.169.254"]),
    ("reference", URL),
    ("reference", [URL]),
    ("reference", f"vllm={URL}"),
    ("lanes", ["vanilla", "vllm"]),
    ("lanes", ["vanilla", URL]),
    ("options", {"vllm": {"url": URL}}),
    ("options", {"trie": {"server": URL}}),
    ("model", URL),
    ("dtype", URL),
]


def make_backend(servers: NamedServers) -> Backend:
    return Backend.of(Worker(lambda _: cast(Workbench, None)), servers=servers)


def read(backend: Backend, **values: Any) -> race_request.VisitorRequest:
    arguments = {"question": "Why?", "lanes": ["trie"], "settings": SETTINGS, "options": None, "model": "", "dtype": ""}
    return backend.read_request(None, **cast(Any, {**arguments, **values}))


@pytest.mark.parametrize(("name", "value"), ATTEMPTS, ids=map(repr, range(len(ATTEMPTS))))
def test_a_visitor_cannot_have_an_address_called(name: str, value: Any) -> None:
    """Each try is refused before any server is asked: a call of `race_beside` or `describe` fails the test."""
    servers = NamedServers(["vllm"], race_beside=cast(Any, pytest.fail), describe=cast(Any, pytest.fail))
    backend = make_backend(servers)
    with pytest.raises(InputError) as caught:
        read(backend, **{name: value})
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    assert read(backend, servers=["vllm"]).servers == ("vllm",)


def test_an_address_in_a_link_or_a_question_is_only_text() -> None:
    link = race_request.read_link({"q": URL, "server": f"own={URL}", "servers": URL})
    assert link == ({"question": URL}, "")
    assert read(make_backend(NamedServers()), question=f"--server own={URL}").servers == ()


def test_servers_race_greedily_and_no_more_than_the_page_shows() -> None:
    servers = NamedServers(["a", "b"])
    assert servers.choose(["b", "a", "b"], RaceSpec(("trie",))) == ("a", "b")
    assert servers.choose(None, RaceSpec(temperature=0.5)) == servers.choose([], RaceSpec(temperature=0.5)) == ()
    with pytest.raises(InputError, match="at temperature 0 only; set it to 0, or untick"):
        servers.choose(["a"], RaceSpec(temperature=0.5))
    with pytest.raises(InputError, match=r"5 lanes and 2 of the servers were chosen; the page shows 6 .* untick 1"):
        # By default five lanes race.
        servers.choose(["a", "b"], RaceSpec())


def test_the_reference_is_one_of_several_chosen_servers() -> None:
    servers = NamedServers(["a", "b", "c"])
    assert servers.choose_reference("b", ("a", "b")) == "b"
    assert servers.choose_reference("", ("a", "b")) == servers.choose_reference(None, ("a",)) == ""
    assert servers.choose_reference("b", ()) == "", "no server takes part, so vanilla is the only reference"
    for name, chosen in (("c", ("a", "b")), ("a", ("a",))):
        with pytest.raises(InputError, match=f"with {name}; tick it and another server, or compare them with vanilla"):
            servers.choose_reference(name, chosen)
    for other in ("trie", "vanilla", ["a"], 0):
        with pytest.raises(InputError, match=r"has no server .* choose one on offer, or vanilla"):
            servers.choose_reference(other, ("a", "b"))


def events_beside(servers: NamedServers, names: list[str], reference: str = "") -> list[Event]:
    """The events of a race of vanilla and the trie beside servers, as the page runs it."""
    target = make_target()
    target.tokenizer = SimpleNamespace(decode=lambda tokens, **_: decode(tokens))  # type: ignore[attr-defined]
    chosen = read(make_backend(servers), servers=names, reference=reference)
    beside = servers.beside(chosen.servers, chosen.reference)
    assert beside is not None
    prepared: Any = SimpleNamespace(prompt=PROMPT, spec=SPEC, message="")
    return list(beside(cast(Any, target), cast(PreparedRace, prepared), never, race(target, PROMPT, SPEC)))


def test_a_chosen_server_races_beside_the_lanes_and_a_broken_one_is_left_out() -> None:
    answering = vllm_routes(vllm_answering(make_target(), decode, **NGRAM))
    with serving(answering) as good, serving(vllm_routes(as_json({"error": "no"}, 500))) as bad, serving({}) as other:
        named = [f"{name}={address.url}" for name, address in (("good", good), ("bad", bad), ("other", other))]
        events = events_beside(named_servers(named), ["bad", "good"])
    started, [finished] = events[0], [event for event in events if isinstance(event, Finished)]
    assert isinstance(started, Started) and [info.lane for info in started.lanes] == ["vanilla", "trie", "good"]
    [sentence] = started.about[LEFT_OUT]
    assert sentence == "The server bad answers with status 500: no."
    assert [result.lane for result in finished.lanes if result.identical] == ["vanilla", "trie", "good"]
    assert sum(isinstance(event, Step) and event.lane == "good" for event in events) > 3


def test_servers_are_compared_with_the_chosen_reference() -> None:
    with serving(vllm_routes(vllm_answering(make_target(), decode, **NGRAM))) as address:
        servers = named_servers([f"{name}={address.url}" for name in ("first", "second")])
        events = events_beside(servers, ["first", "second"], reference="second")
    started = events[0]
    assert isinstance(started, Started)
    assert [info.reference for info in started.lanes] == ["", "", "second", "second"]


def test_a_stopped_race_asks_no_further_server() -> None:
    with serving(vllm_routes(cast(Any, pytest.fail))) as address:
        servers = named_servers([f"good={address.url}"])
        beside, target = servers.beside(["good"]), make_target()
        prepared: Any = SimpleNamespace(prompt=PROMPT, spec=SPEC, message="")
        assert beside is not None
        target.tokenizer = SimpleNamespace(decode=decode)  # type: ignore[attr-defined]
        stopped = race(target, PROMPT, SPEC, stop=lambda: True)
        events = list(beside(cast(Any, target), prepared, lambda: True, stopped))
    assert isinstance(events[0], Started) and LEFT_OUT not in events[0].about


def test_health_is_asked_rarely_and_its_words_are_text() -> None:
    now, hostile = [0.0], "<img src=x onerror=alert(1)>"
    asked = list[str]()

    def models(_: dict[str, Any]) -> Answer:
        asked.append("models")
        return as_json({"data": [{"id": hostile, "owned_by": "vllm"}]})

    with serving({**vllm_routes(Answer()), "/v1/models": models}) as address:
        page_servers = named_servers([f"vllm={address.url}", "gone=http://127.0.0.1:9"])
        page_servers._clock = lambda: now[0]
        html = PageEvents(make_backend(page_servers), []).describe_servers()
        for moment in (1.0, HEALTH_S):
            now[0] = moment
            assert PageEvents(make_backend(page_servers), []).describe_servers() == html
        assert len(asked) == 1
        now[0] = HEALTH_S + 1.0
        page_servers.health()
        assert len(asked) == 2
    assert [health.answers for health in page_servers.health()] == [True, False]
    assert "The server vllm answers: vLLM 0.32.0, model &lt;img" in html and hostile not in html
    assert "The server gone cannot be reached" in html and html.count("<p data-answers=") == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "http://127.0.0.1:9"], "not of the form NAME=URL"),
        (["--server", "trie=http://127.0.0.1:9"], "a lane has this name already"),
        (["--server", "a=http://127.0.0.1:9", "--server", "a=http://127.0.0.1:8"], "a lane has this name already"),
        (["--server", "a=http://127.0.0.1:9", "--replay", "race.jsonl"], "leave out one of the two"),
    ],
)
def test_a_bad_flag_is_refused_before_anything_is_loaded(arguments: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        app.read_config(app.parse(["--model", "tiny", *arguments]))
