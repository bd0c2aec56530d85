"""The audience's votes over loopback: people in front of a stage guess with their phones which lane wins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from specrace.core.errors import InputError
from specrace.ui.page import audience
from specrace.ui.page.audience import COOKIE, MAX_POLLS, MAX_VOTERS, Audience, Poll, find_network_address
from specrace.ui.server.guard import Hosts
from tests.ui.served import Served, serving

LANES = ["Vanilla", "N-gram trie"]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audience, "POLLS_PER_HOUR", 100)
        with serving("--allowed-hosts", "stage.test") as app:
            yield app


@pytest.fixture
def poll(served: Served) -> dict[str, Any]:
    """A poll whose first round is open for votes."""
    opened: dict[str, Any] = served.ask("POST", "/audience", {"origin": "http://stage.test"}).json()
    update(served, opened, open=True)
    return opened


def update(served: Served, poll: dict[str, Any], **body: Any) -> Any:
    """Open or close a round as the stage does."""
    answer = served.ask("POST", f"/audience/{poll['code']}", {"key": poll["key"], "lanes": LANES, **body})
    return answer.json()


def join(served: Served, poll: dict[str, Any]) -> str:
    """Open the poll's link as a phone does. Returns the phone's cookie."""
    answer = served.ask("GET", f"/audience/{poll['code']}")
    assert answer.status == 200 and "script-src 'self'" in answer.headers["content-security-policy"]
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert cookie.startswith(COOKIE)
    return cookie


def vote(served: Served, poll: dict[str, Any], cookie: str, choice: Any, round_number: Any = 1) -> Any:
    """Vote as a phone does."""
    body = {"round": round_number, "choice": choice}
    return served.ask("POST", f"/audience/{poll['code']}/vote", body, Cookie=cookie).json()


def test_a_poll_has_a_link_and_a_qr_code(poll: dict[str, Any]) -> None:
    assert poll["link"] == f"http://stage.test/audience/{poll['code']}"
    # The smallest QR code has 21 modules on each side.
    assert len(poll["qr"]) == len(poll["qr"][0]) >= 21
    # The top left corner has a finder pattern.
    assert [row[:8] for row in poll["qr"][:8]] == [
        "11111110", "10000010", "10111010", "10111010", "10111010", "10000010", "11111110", "00000000",
    ]  # fmt: skip


def test_each_browser_has_one_vote_and_may_change_it(served: Served, poll: dict[str, Any]) -> None:
    ann, ben = join(served, poll), join(served, poll)
    vote(served, poll, ann, 0)
    assert vote(served, poll, ben, 1)["counts"] == [1, 1]
    changed = vote(served, poll, ann, 1)
    assert changed["counts"] == [0, 2] and changed["mine"] == 1
    assert update(served, poll, open=False, winner=1)["counts"] == [0, 2]
    assert "closed" in vote(served, poll, ann, 0)["error"]


def test_phones_show_the_question_and_the_lanes_colours(served: Served, poll: dict[str, Any]) -> None:
    update(served, poll, open=True, question="<b>Why?</b>", hues=[0, 4])
    state = served.ask("GET", f"/audience/{poll['code']}/state").json()
    assert (state["question"], state["hues"]) == ("<b>Why?</b>", [0, 4])
    phone = served.ask("GET", f"/audience/{poll['code']}").text
    assert '[data-hue="4"] { --hue: #009e73; }' in phone and "{hues}" not in phone


def test_votes_before_the_start_count_and_the_next_race_starts_with_no_votes(
    served: Served, poll: dict[str, Any]
) -> None:
    ann = join(served, poll)
    vote(served, poll, ann, 1)
    assert update(served, poll, open=True)["counts"] == [0, 1]
    update(served, poll, open=False, winner=0)
    next_round = update(served, poll, open=True)
    assert next_round["round"] == 2 and next_round["counts"] == [0, 0] and next_round["winner"] is None
    assert "closed" in vote(served, poll, ann, 1)["error"]
    # Other lanes begin another round.
    assert update(served, poll, open=True, lanes=["Fusion"])["round"] == 3


@pytest.mark.parametrize("choice", [2, -1, True, "1", None, 1e400])
def test_a_vote_for_an_unknown_choice_is_refused(served: Served, poll: dict[str, Any], choice: Any) -> None:
    assert "error" in vote(served, poll, join(served, poll), choice)
    assert update(served, poll, open=True)["counts"] == [0, 0]


def test_a_vote_without_a_valid_cookie_is_refused(served: Served, poll: dict[str, Any]) -> None:
    for cookie in ("", f"{COOKIE}=x", f"{COOKIE}={'x' * 4000}"):
        assert "cookie" in vote(served, poll, cookie, 1)["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"key": "wrong"},
        {"key": None},
        {"lanes": []},
        {"lanes": ["a"] * 7},
        {"lanes": ["a" * 61]},
        {"lanes": [1]},
        {"lanes": "ab"},
        {"open": False, "winner": 2},
        {"question": "x" * 20_000},
        {"question": 7},
        {"hues": [99]},
        {"hues": "1"},
        {"open": False, "winner": True},
    ],
)
def test_invalid_stage_updates_are_refused(served: Served, poll: dict[str, Any], body: dict[str, Any]) -> None:
    assert "error" in update(served, poll, **body)
    assert served.ask("GET", f"/audience/{poll['code']}/state").json()["lanes"] == LANES


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b"[" * 5000])
def test_malformed_bodies_are_refused(served: Served, poll: dict[str, Any], body: bytes) -> None:
    for path in ("", f"/{poll['code']}", f"/{poll['code']}/vote"):
        answer = served.ask("POST", f"/audience{path}", body, Cookie=join(served, poll))
        assert answer.status == 400 and answer.json()["error"]


@pytest.mark.parametrize("origin", ["http://evil.test", "ftp://stage.test", "", None, 3, "http://[", "//stage.test"])
def test_a_poll_cannot_link_to_another_server(served: Served, origin: Any) -> None:
    assert served.ask("POST", "/audience", {"origin": origin}).status == 400


def test_an_unknown_poll_is_refused(served: Served) -> None:
    assert served.ask("GET", "/audience/ffffff/state").status == 400


def test_polls_and_votes_have_limits() -> None:
    now = 0.0
    polls = Audience(Hosts(allowed=["stage.test"]), clock=lambda: now)
    codes = []
    for _ in range(MAX_POLLS + 1):
        now += 3600 / audience.POLLS_PER_HOUR
        codes.append(polls.open("203.0.113.1", "https://stage.test").code)
    with pytest.raises(InputError, match="no such poll"):
        polls[codes[0]]
    assert polls[codes[-1]]
    for _ in range(audience.POLLS_PER_HOUR - 1):
        polls.open("203.0.113.2", "https://stage.test")
    polls.open("203.0.113.2", "https://stage.test")
    with pytest.raises(InputError, match="within an hour"):
        polls.open("203.0.113.2", "https://stage.test")
    poll = Poll("key")
    poll.update(LANES, True, None)
    for voter in range(MAX_VOTERS):
        poll.vote(str(voter), 1, voter % 2)
    with pytest.raises(InputError, match="full"):
        poll.vote("one more", 1, 0)
    # A full poll still lets its voters change their votes.
    poll.vote("7", 1, 0)
    state = poll.state("7")
    assert sum(state.counts) == MAX_VOTERS
    # The total polling rate is capped: more voters poll less often.
    assert MAX_VOTERS / (state.wait_ms / 1000) <= 20


def test_the_address_at_which_phones_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACE_HOST", raising=False)
    # The tests themselves may run in a container.
    monkeypatch.setattr("specrace.ui.page.audience.CONTAINER_FILES", ())
    assert find_network_address(["127.0.0.1", "localhost", "::1"], 7860) == ""
    assert find_network_address(["192.0.2.7", "192.0.2.7"], 7860) == "http://192.0.2.7:7860"
    assert find_network_address(["2001:db8::1"], 80) == "http://[2001:db8::1]:80"
    monkeypatch.setattr("specrace.ui.page.audience._local_address", lambda: "198.51.100.3")
    assert find_network_address(["0.0.0.0"], 7860) == "http://198.51.100.3:7860"
    monkeypatch.setattr("specrace.ui.page.audience.CONTAINER_FILES", (__file__,))
    assert find_network_address(["0.0.0.0"], 7860) == ""
    monkeypatch.setenv("SPACE_HOST", "a-b.hf.space,other")
    assert find_network_address(["0.0.0.0"], 7860) == "https://a-b.hf.space"
