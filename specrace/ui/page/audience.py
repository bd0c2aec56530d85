"""Polls of the audience: the page on stage opens a poll, and phones that follow its link or QR code vote for a lane.

A lane is one of the methods that race. The poll asks which lane will win.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import segno
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from specrace.core.errors import InputError
from specrace.core.settings import MAX_PAGE_LANES, MAX_QUESTION_CHARACTERS
from specrace.ui.server.guard import AUDIENCE, POLL_STATE, POLL_VOTE, Hosts
from specrace.ui.server.visitors import HOUR_S, Rate, TooManyError, address_of, visitor_key
from specrace.ui.wire import OpenedPoll, PollError, PollState, to_json
from specrace.views.colours import HUES

COOKIE = "specrace_voter"
# Files that exist in Docker's and in Podman's containers.
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
# Polls of a server, and voters in a poll: guesses, which bound the memory.
MAX_POLLS, MAX_VOTERS = 100, 5000
# How many polls a visitor may open.
POLLS_PER_HOUR = 20
# Characters of a lane's title.
MAX_TITLE = 60
# How often all phones together may request a poll's state, so that a full hall does not slow down the race.
STATES_PER_S = 20
# The shortest time after which a phone may request the state again.
MIN_WAIT_MS = 1500
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# What `secrets.token_urlsafe` may return: a voter's id.
TOKEN = re.compile(r"[\w-]{16,64}")


@dataclass
class Poll:
    """A poll: which lane will win? `winner` is the index of a lane, None until the race has ended.

    `votes` maps a browser's random id to the index of a lane; nothing else about a voter is stored. `round` counts the
    rounds, one for each race. `hues`: the number of each lane's colour. Whoever knows `key` can control the poll.
    """

    key: str
    question: str = ""
    lanes: list[str] = field(default_factory=list)
    hues: list[int] = field(default_factory=list)
    round: int = 0
    open: bool = False
    winner: int | None = None
    votes: dict[str, int] = field(default_factory=dict)

    def update(
        self, lanes: list[str], is_open: bool, winner: int | None, question: str = "", hues: Sequence[int] = ()
    ) -> None:
        """Open a round, or close it. Opening an open round with the same lanes keeps its votes."""
        if is_open and (not self.open or lanes != self.lanes):
            self.lanes, self.winner, self.votes = lanes, None, {}
            self.round += 1
        self.open, self.question, self.hues = is_open, question, list(hues)
        if not is_open:
            self.winner = winner

    def vote(self, voter: str, round_number: int, choice: int) -> None:
        """Count a browser's vote; it replaces an earlier one in the round. Raises InputError."""
        if round_number != self.round or not self.open:
            raise InputError("The votes of this race are closed; wait for the next one.")
        if not 0 <= choice < len(self.lanes):
            raise InputError("There is no such lane.")
        if voter not in self.votes and len(self.votes) >= MAX_VOTERS:
            raise InputError("This poll is full.")
        self.votes[voter] = choice

    def state(self, voter: str = "") -> PollState:
        """What the stage and the `voter`'s phone show; they request it again after `wait_ms`."""
        counts = Counter(self.votes.values())
        return PollState(
            round=self.round,
            question=self.question,
            lanes=self.lanes,
            hues=self.hues,
            open=self.open,
            winner=self.winner,
            counts=[counts[index] for index in range(len(self.lanes))],
            mine=self.votes.get(voter),
            wait_ms=max(MIN_WAIT_MS, 1000 * len(self.votes) // STATES_PER_S),
        )


class Audience:
    """The polls of a server, by code. Beyond MAX_POLLS the least recently used poll is dropped.

    `network_address` is the server's URL on its network, or ""; `root_path` is the proxy's path to the page.
    """

    def __init__(
        self,
        hosts: Hosts,
        network_address: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        root_path: str = "",
    ) -> None:
        self._hosts, self.root_path = hosts, root_path
        self.network_address = network_address
        self._polls: OrderedDict[str, Poll] = OrderedDict()
        self._rate = Rate(POLLS_PER_HOUR, HOUR_S, clock)

    def open(self, address: str | None, origin: Any) -> OpenedPoll:
        """Open a poll. `origin`: the scheme and host with which phones reach this server. Raises InputError."""
        parts = urlsplit(origin) if isinstance(origin, str) and len(origin) <= 300 else urlsplit("")
        if parts.scheme not in ("http", "https") or parts.netloc not in self._hosts:
            raise InputError("Phones do not reach this server under that address.")
        if not self._rate.take(visitor_key(address)):
            raise TooManyError(f"You have opened {POLLS_PER_HOUR} polls within an hour; try later.")
        # Short, so that the QR code is coarse. It only lets phones vote; `key` controls the poll.
        code = secrets.token_hex(3)
        poll = Poll(secrets.token_urlsafe())
        self._polls[code] = poll
        while len(self._polls) > MAX_POLLS:
            self._polls.popitem(last=False)
        link = f"{parts.scheme}://{parts.netloc}{self.root_path}{AUDIENCE}/{code}"
        # With error correction "m", a code with up to 15 % of it damaged can be read.
        rows = ["".join(map(str, row)) for row in segno.make(link, error="m", micro=False).matrix]
        return OpenedPoll(code, poll.key, link, rows)

    def __getitem__(self, code: str) -> Poll:
        """The poll with this code. Raises InputError."""
        if code not in self._polls:
            raise InputError("There is no such poll any more; scan the code on the stage.")
        self._polls.move_to_end(code)
        return self._polls[code]

    def control(self, code: str, body: Any) -> PollState:
        """Open or close a round of the poll, as the JSON `body` of the stage's request says. Raises InputError."""
        poll = self[code]
        if not isinstance(body, dict) or not secrets.compare_digest(str(body.get("key")).encode(), poll.key.encode()):
            raise InputError("Only the stage that opened this poll can control it.")
        lanes, winner = body.get("lanes"), body.get("winner")
        if not isinstance(lanes, list) or not 1 <= len(lanes) <= MAX_PAGE_LANES or not all(map(_is_title, lanes)):
            raise InputError(f"A poll has 1 to {MAX_PAGE_LANES} lanes.")
        # `isinstance` would accept True and False as numbers.
        if winner is not None and (type(winner) is not int or not 0 <= winner < len(lanes)):
            raise InputError("There is no such lane.")
        question, hues = body.get("question", ""), body.get("hues", [])
        if not isinstance(question, str) or len(question) > MAX_QUESTION_CHARACTERS:
            raise InputError(f"A poll's question has at most {MAX_QUESTION_CHARACTERS} characters.")
        if not isinstance(hues, list) or not all(type(hue) is int and 0 <= hue < len(HUES) for hue in hues):
            raise InputError(f"A poll's colours are numbers from 0 to {len(HUES) - 1}.")
        poll.update(lanes, body.get("open") is True, winner, question, hues)
        return poll.state()


def audience_routes(audience: Audience, phone_page: str) -> list[Route]:
    """The routes by which the stage controls polls and phones vote. `phone_page` is the HTML of the page on phones."""

    async def create(request: Request) -> Response:
        body = await request.json()
        origin = body.get("origin") if isinstance(body, dict) else None
        return _json(audience.open(address_of(request), origin))

    async def control(request: Request) -> Response:
        return _json(audience.control(request.path_params["code"], await request.json()))

    async def show(request: Request) -> Response:
        answer = HTMLResponse(phone_page, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-store"})
        if not _voter(request):
            secure = request.url.scheme == "https"
            path = f"{audience.root_path}{AUDIENCE}"
            answer.set_cookie(
                COOKIE, secrets.token_urlsafe(), path=path, httponly=True, secure=secure, samesite="strict"
            )
        return answer

    async def state(request: Request) -> Response:
        return _json(audience[request.path_params["code"]].state(_voter(request)))

    async def cast_vote(request: Request) -> Response:
        poll = audience[request.path_params["code"]]
        body = await request.json()
        voter = _voter(request)
        if not voter:
            raise InputError("Allow this page its cookie: it keeps you from voting twice.")
        vote = body if isinstance(body, dict) else {}
        round_number, choice = vote.get("round"), vote.get("choice")
        if type(round_number) is not int or type(choice) is not int:
            raise InputError("A vote has a round and a choice.")
        poll.vote(voter, round_number, choice)
        return _json(poll.state(voter))

    return [
        Route(AUDIENCE, _with_json_errors(create), methods=["POST"]),
        Route(f"{AUDIENCE}/{{code}}", show, methods=["GET"]),
        Route(f"{AUDIENCE}/{{code}}", _with_json_errors(control), methods=["POST"]),
        Route(f"{AUDIENCE}/{{code}}{POLL_STATE}", _with_json_errors(state)),
        Route(f"{AUDIENCE}/{{code}}{POLL_VOTE}", _with_json_errors(cast_vote), methods=["POST"]),
    ]


def find_network_address(bound: Sequence[str], port: int) -> str:
    """The URL at which other machines on the network reach a server bound to these hosts; "" if they cannot."""
    if space := os.environ.get("SPACE_HOST"):
        return f"https://{space.split(',')[0]}"
    if _in_container():
        return ""
    for host in bound:
        name = _local_address() if host in ("0.0.0.0", "::") else host
        if name and name not in ("localhost", "::1") and not name.startswith("127."):
            return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
    return ""


def _in_container() -> bool:
    """Whether this runs in a container or in WSL, whose network phones cannot reach."""
    return any(map(os.path.exists, CONTAINER_FILES)) or "microsoft" in os.uname().release.lower()


def _local_address() -> str:
    """This machine's IP address on its network; "" if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing, but chooses the address that packets would come from. This
            # destination is reserved for documentation.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ""


def _with_json_errors(handle: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Wrap `handle` to turn its errors into JSON answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handle(request)  # type: ignore[no-any-return]
        except TooManyError as error:
            return _json(PollError(str(error)), 429)
        except InputError as error:
            return _json(PollError(str(error)), 400)
        except (ValueError, RecursionError):
            return _json(PollError("This is not JSON."), 400)

    return answer


def _json(content: Struct, status: int = 200) -> Response:
    return Response(to_json(content), status, media_type="application/json")


def _voter(request: Request) -> str:
    """The random id in the browser's cookie; "" if it has none yet."""
    voter = request.cookies.get(COOKIE, "")
    return voter if TOKEN.fullmatch(voter) else ""


def _is_title(value: Any) -> bool:
    """Whether a value can be a lane's title in a poll."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TITLE
