"""Many visitors at once on the app: python -m tests.measure.load --visitors 50 --races 500

Every visitor races, watches to the end, and comes again when the queue is full. Then 30 more close in mid-race. It
prints what it found, and ends with code 1 where anybody met an error other than a full queue, an accepted race was not
whole or not identical to vanilla, nobody was shown a place in the queue, the memory grew by more than 5 % (medians over
the last 50 races and over those after the first 50, for races under way take some), or the races that were left took
longer than 2 s to go. For an idle machine. The memory of another model after twenty races:
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
PLACE = re.compile(r"You're next\.|\d+ races are before yours\.")
FIRST, GROWTH, LEFT_S, LEAVERS = 50, 1.05, 2.0, 30
# How long a visitor waits after a full queue, and how often to check whether all races are gone.
AGAIN_S, LOOK_S = 3.0, 0.02
# Characters of the server's log that are printed.
LOGGED = 4000


class Load:
    """The visitors of one server, and counts of what they met."""

    def __init__(self, port: int) -> None:
        self.app = Served(port, Path())
        self.config = self.app.ask("GET", "/config").json()
        self.start = max(self.config["dependencies"], key=lambda dependency: len(dependency["inputs"]))
        self.met: Counter[str] = Counter()
        self.errors: list[str] = []
        # In bytes, after each race.
        self.memory: list[float] = []
        self._lock = threading.Lock()

    def metric(self, name: str) -> float:
        """A count of the server's."""
        families = text_string_to_metric_families(self.app.ask("GET", "/metrics").text)
        return next(sample.value for family in families for sample in family.samples if sample.name == name)

    def ask(self, visitor: int, number: int) -> str:
        """Ask for a race: its key, or "" where the queue is full."""
        changes = {"Question": QUESTIONS[number % len(QUESTIONS)], "New tokens": 48}
        values = [component_value(self.config, component, None, changes) for component in self.start["inputs"]]
        session = f"visitor-{visitor}-{number}"
        body = {"data": values, "fn_index": self.start["id"], "session_hash": session}
        joined = self.app.ask("POST", "/gradio_api/queue/join", body)
        if joined.status == 503:
            return ""
        for line in self.app.ask("GET", f"/gradio_api/queue/data?session_hash={session}").text.splitlines():
            message = json.loads(line.removeprefix("data: ")) if line else {}
            if message.get("msg") == "process_completed":
                output = message["output"]
                if message["success"]:
                    return str(json.loads(output["data"][0])["key"])
                return self.refused(str(output["error"]))
        return self.refused("the event was never completed")

    def refused(self, error: str) -> str:
        """Note a refusal that is not the queue's."""
        if not FULL.fullmatch(error):
            self.errors.append(error)
        return ""

    def watch(self, key: str) -> None:
        """Watch a race to its end."""
        with self.app.watching(key) as frames:
            for message in messages(frames):
                if message["kind"] == "note":
                    self.met["places" if PLACE.fullmatch(message["message"]) else "notes"] += 1
                    if message["phase"] in ("failed", "stopped"):
                        self.errors.append(message["message"])
                if message["kind"] == "end":
                    end = message["parts"][0]
                    whole = end["phase"] == "finished" and all(map(is_same, end["results"]))
                    self.met["identical" if whole else "broken"] += 1
                    return
        self.errors.append("the race never ended")

    def visit(self, visitor: int, races: Iterator[int]) -> None:
        """Race until there are enough."""
        for number in races:
            while not (key := self.ask(visitor, number)):
                self.met["full"] += 1
                time.sleep(AGAIN_S)
            self.watch(key)
            with self._lock:
                self.met["races"] += 1
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
        """Seconds until all races of visitors who closed in mid-race are gone."""
        connections = [connection for number in range(LEAVERS) if (connection := self.open(number))]
        first = connections[0].getresponse()
        for message in messages(first):
            if message["kind"] == "step":
                break
        self.met["left"] = int(self.metric("specrace_queue_length") + self.metric("specrace_races_running"))
        began = time.monotonic()
        for connection in connections:
            connection.close()
        first.close()
        while self.metric("specrace_queue_length") or self.metric("specrace_races_running"):
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def open(self, number: int) -> http.client.HTTPConnection | None:
        """The connection of a visitor who watches a race; None where the queue is full."""
        if not (key := self.ask(number, number)):
            return None
        connection = self.app.connect()
        connection.request("GET", f"/gradio_api/race/{key}")
        return connection


class LockedIterator:
    """An iterator for several threads."""

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
    """A race's messages as they come."""
    for line in frames:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def main() -> int:
    """Return 0 if all is well, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--races", type=int, default=500)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    opening = ("--model", options.model, "--dtype", options.dtype, "--races-per-minute", "10000")
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), *opening) as (url, _):
        load = Load(int(url.rpartition(":")[2].strip("/")))
        while load.app.ask("GET", "/healthz").json() != {"status": "ready"}:
            time.sleep(LOOK_S)
        began = time.monotonic()
        load.run(options.visitors, options.races)
        took, left_s = time.monotonic() - began, load.leave()
        logged = Path(folder, "log.txt").read_text().partition("\n")[2]
    last = median(load.memory[-FIRST:])
    growth = last / median(load.memory[FIRST : 2 * FIRST] or [last])
    print(f"{options.visitors} visitors, {load.met['races']} races in {took:.0f} s, {load.met['identical']} identical")
    print(f"{load.met['full']} times the queue was full, {load.met['places']} places shown")
    print(f"memory {last / 1e6:.0f} MB, {growth:.3f} of that after {FIRST} races (medians of {FIRST})")
    print(f"{LEAVERS} closed in mid-race, {load.met['left']} races with them: gone after {left_s:.2f} s")
    print("\n".join(f"{count} x {error}" for error, count in Counter(load.errors).items()) or "no errors")
    print(logged[-LOGGED:], end="")
    waited = load.met["places"] or options.visitors == 1
    well = load.met["identical"] == options.races and waited and load.met["left"] and not load.errors
    return int(not well or growth > GROWTH or left_s > LEFT_S)


if __name__ == "__main__":
    sys.exit(main())
