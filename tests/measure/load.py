"""Many visitors at once on the app: python -m tests.measure.load --visitors 50 --races 500

Every visitor races, watches to the end, and tries again if the queue is full. Then 30 more visitors leave in mid-race.
Run it on an idle machine. Prints the figures, and exits with 1 if
- a visitor met an error other than a full queue;
- an accepted race was incomplete or not identical to vanilla;
- no visitor was told how many races are before theirs;
- memory grew by more than 5 % from the second 50 races to the last 50 (medians, because running races need memory);
- the races of the visitors who left were not gone within 2 s.

The memory of another model after twenty races:
python -m tests.measure.load --visitors 1 --races 20 --model smollm2-135m --dtype bfloat16
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.browser.apps import serving
from tests.ui.served import Served, component_value

QUESTIONS = ("What is the n-gram trie built from?", "Why does bread rise?", "What causes the tides?")
FULL = re.compile(r"\d+ races are waiting already; try again in a minute\.|.*[Qq]ueue is full.*")
POSITION = re.compile(r"You're next\.|\d+ races are before yours\.")
# Memory is compared between blocks of this many races.
BLOCK = 50
MAX_GROWTH = 1.05
NUM_LEAVING, MAX_LEAVING_S = 30, 2.0
# How long a visitor waits after a full queue, and how often to check whether all races are gone.
RETRY_S, POLL_S = 3.0, 0.02
# How many characters at the end of the server's log are printed.
MAX_LOG = 4000


class Load:
    """The visitors of one server, and counts of their races, notes and errors."""

    def __init__(self, port: int) -> None:
        # The folder of uploads is not used here.
        self.app = Served(port, Path())
        self.config = self.app.ask("GET", "/config").json()
        # The event that starts a race has the most inputs.
        self.start_race_function = max(self.config["dependencies"], key=lambda dependency: len(dependency["inputs"]))
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        # The server's memory in bytes after each race.
        self.memory: list[float] = []
        self._lock = threading.Lock()

    def metric(self, name: str) -> float:
        """The value of one of the server's metrics."""
        families = text_string_to_metric_families(self.app.ask("GET", "/metrics").text)
        return next(sample.value for family in families for sample in family.samples if sample.name == name)

    def ask(self, visitor: int, number: int) -> str:
        """Request a race; return its key, or "" if the queue is full or the request was refused."""
        changes = {"Question": QUESTIONS[number % len(QUESTIONS)], "New tokens": 48}
        values = [
            component_value(self.config, component, None, changes) for component in self.start_race_function["inputs"]
        ]
        session = f"visitor-{visitor}-{number}"
        body = {"data": values, "fn_index": self.start_race_function["id"], "session_hash": session}
        joined = self.app.ask("POST", "/gradio_api/queue/join", body)
        if joined.status == 503:
            return ""
        for line in self.app.ask("GET", f"/gradio_api/queue/data?session_hash={session}").text.splitlines():
            message = json.loads(line.removeprefix("data: ")) if line else {}
            if message.get("msg") == "process_completed":
                output = message["output"]
                if message["success"]:
                    return str(json.loads(output["data"][0])["key"])
                self.record_refusal(str(output["error"]))
                return ""
        self.record_refusal("the event was never completed")
        return ""

    def record_refusal(self, error: str) -> None:
        """Record an error, unless it says that the queue is full."""
        if not FULL.fullmatch(error):
            self.errors.append(error)

    def watch(self, key: str) -> None:
        """Watch a race to its end."""
        with self.app.watching(key) as frames:
            for message in messages(frames):
                if message["kind"] == "note":
                    self.counts["positions" if POSITION.fullmatch(message["message"]) else "notes"] += 1
                    if message["phase"] in ("failed", "stopped"):
                        self.errors.append(message["message"])
                if message["kind"] == "end":
                    end = message["parts"][0]
                    is_identical = end["phase"] == "finished" and all(map(is_same, end["results"]))
                    self.counts["identical" if is_identical else "broken"] += 1
                    return
        self.errors.append("the race never ended")

    def visit(self, visitor: int, races: Iterator[int]) -> None:
        """Run one race for each number in `races`; record the server's memory after each."""
        for number in races:
            while not (key := self.ask(visitor, number)):
                self.counts["full"] += 1
                time.sleep(RETRY_S)
            self.watch(key)
            with self._lock:
                self.counts["races"] += 1
                self.memory.append(self.metric("process_resident_memory_bytes"))

    def run(self, visitors: int, races: int) -> None:
        """Let `visitors` visitors run `races` races in all."""
        locked = LockedIterator(iter(range(races)))
        threads = [threading.Thread(target=self.visit, args=[visitor, locked]) for visitor in range(visitors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def leave(self) -> float:
        """Let visitors leave in mid-race; return the seconds until all their races are gone."""
        connections = [connection for number in range(NUM_LEAVING) if (connection := self.open(number))]
        first = connections[0].getresponse()
        for message in messages(first):
            if message["kind"] == "step":
                break
        self.counts["left"] = int(self.metric("specrace_queue_length") + self.metric("specrace_races_running"))
        began = time.monotonic()
        for connection in connections:
            connection.close()
        first.close()
        while self.metric("specrace_queue_length") or self.metric("specrace_races_running"):
            time.sleep(POLL_S)
        return time.monotonic() - began

    def open(self, number: int) -> http.client.HTTPConnection | None:
        """The connection of a visitor who watches a race; None if the queue is full."""
        if not (key := self.ask(number, number)):
            return None
        connection = self.app.connect()
        connection.request("GET", f"/gradio_api/race/{key}")
        return connection


class LockedIterator:
    """An iterator that several threads may advance."""

    def __init__(self, inner: Iterator[int]) -> None:
        self._inner, self._lock = inner, threading.Lock()

    def __iter__(self) -> LockedIterator:
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._inner)


def is_same(row: dict[str, Any]) -> bool:
    """Whether a lane printed vanilla's text."""
    return row["lane"] == "vanilla" or "identical" in row["badge"]


def messages(frames: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """A race's messages, in the order in which they arrive."""
    for line in frames:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def main() -> int:
    """Run the visitors and print the figures; return 0 if all is well, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--races", type=int, default=500)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    arguments = ("--model", options.model, "--dtype", options.dtype, "--races-per-minute", "10000")
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), *arguments) as (url, _):
        load = Load(int(url.rpartition(":")[2].strip("/")))
        while load.app.ask("GET", "/healthz").json() != {"status": "ready"}:
            time.sleep(POLL_S)
        began = time.monotonic()
        load.run(options.visitors, options.races)
        took_s, leaving_s = time.monotonic() - began, load.leave()
        server_log = Path(folder, "log.txt").read_text().partition("\n")[2]
    last = median(load.memory[-BLOCK:])
    growth = last / median(load.memory[BLOCK : 2 * BLOCK] or [last])
    races, identical = load.counts["races"], load.counts["identical"]
    print(f"{options.visitors} visitors, {races} races in {took_s:.0f} s, {identical} identical")
    print(f"{load.counts['full']} times the queue was full, {load.counts['positions']} positions in the queue shown")
    print(f"memory {last / 1e6:.0f} MB, {growth:.3f} of that after {BLOCK} races (medians of {BLOCK})")
    print(
        f"{NUM_LEAVING} visitors left in mid-race; their {load.counts['left']} races were gone after {leaving_s:.2f} s"
    )
    print("\n".join(f"{count} x {error}" for error, count in Counter(load.errors).items()) or "no errors")
    print(server_log[-MAX_LOG:], end="")
    has_waited = load.counts["positions"] or options.visitors == 1
    is_well = load.counts["identical"] == options.races and has_waited and load.counts["left"] and not load.errors
    return int(not is_well or growth > MAX_GROWTH or leaving_s > MAX_LEAVING_S)


if __name__ == "__main__":
    sys.exit(main())
