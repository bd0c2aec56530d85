"""Races on ZeroGPU: the real `spaces` package with its forked processes and its pickling, but without a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.cli import app as front_door
from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.engine.spec import RaceSpec
from specrace.ui import zero_gpu
from specrace.workbench import Workbench
from tests import processes
from tests.ui.device_api import DeviceApi, app_on_zero_gpu, device_api
from tests.ui.served import Served
from tests.ui.waiting import wait_until

LANES = ("vanilla", "trie", "rest", "fusion")
QUESTION = "Why does bread rise?"
TOKENS = 24
TOKEN = "a-header.e30.a-signature"


# Loads a model onto an imitated "cuda". A torch for CPUs lacks a few names that `spaces` looks up.
LOADING = """
import torch
torch._C._cuda_init = torch.cuda._is_in_bad_fork = bool
torch.version.cuda = "13.0"
from specrace.ui import zero_gpu
zero_gpu.imitate_cuda()
import spaces.zero
from specrace.model.loading import load_target
target = load_target(device="auto", ready=False)
zero_gpu.make_runner(target)
print(target.device, target.describe()["dtype"], spaces.zero.torch.pack())
"""


@dataclass
class LentApp:
    """An app on ZeroGPU, and the device API that lends it a GPU."""

    served: Served
    api: DeviceApi
    pid: int

    def race(self, session: str, **changes: Any) -> list[dict[str, Any]]:
        """Race as the page does; returns the messages."""
        key = self.served.race(session, token=TOKEN, **asking(TOKENS, **changes))["key"]
        with self.served.watching(key) as answer:
            lines = answer.read().decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def asking(tokens: int, **changes: Any) -> dict[str, Any]:
    """Return the values that the page sends, by label."""
    return {"New tokens": tokens, "Lanes": list(LANES), "Question": QUESTION, **changes}


def badges(end: dict[str, Any]) -> set[str]:
    """Return the kinds of the lanes' badges."""
    return {row["badge"][0] for row in end["results"]}


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory, bundled: Workbench) -> Iterator[LentApp]:  # noqa: ARG001
    """One app for all tests; it uses the document index that `bundled` has built."""
    folder = tmp_path_factory.mktemp("space")
    with device_api() as (api, address), app_on_zero_gpu(address, folder, "--model", "tiny") as (process, port):
        yield LentApp(Served(port, folder), api, process.pid)


def parts_of(messages: list[dict[str, Any]], kind: str) -> list[Any]:
    return [part for message in messages if message["kind"] == kind for part in message["parts"]]


def test_startup_is_reported_before_the_page_is_served(lent: LentApp) -> None:
    assert lent.api.requests[0][0] == "/startup-report" and len(lent.api.of("/startup-report")) == 1


def test_a_race_on_zero_gpu_equals_one_without_it(lent: LentApp, bundled: Workbench) -> None:
    messages = lent.race("first")
    events = list(bundled.ask(QUESTION, RaceSpec(LANES, TOKENS)))
    (end,) = parts_of(messages, "end")
    finished = next(event for event in events if isinstance(event, Finished))
    assert badges(end) == {"reference", "identical"}
    assert [row["lane"] for row in end["results"]] == [lane.lane for lane in finished.lanes]
    for lane in LANES:
        mine = [step["event"] for step in parts_of(messages, "step") if step["event"]["lane"] == lane]
        theirs = [event for event in events if isinstance(event, Step) and event.lane == lane]
        assert "".join("".join(step["texts"]) for step in mine) == "".join("".join(step.texts) for step in theirs)
        # Fusion measures how long drafting takes, so its drafts may differ between runs; its text may not.
        assert [step["texts"] for step in mine] == [list(step.texts) for step in theirs] or lane == "fusion"


def test_each_call_gets_a_new_process_unless_one_is_kept_idle(lent: LentApp) -> None:
    """A call requests time from the visitor's quota."""
    before, scheduled = len(lent.api.pids()), len(lent.api.of("/schedule"))
    assert parts_of(lent.race("second"), "end")
    pids = lent.api.pids()
    assert len({lent.pid, *pids}) == len(pids) + 1 and len(pids) == before + 1
    requests = lent.api.of("/schedule")
    assert {parameters["token"] for parameters in requests} == {TOKEN}
    assert int(requests[scheduled]["durationSeconds"]) == pytest.approx(seconds(len(LANES), TOKENS, 30_000_000), abs=1)
    lent.api.idle = True
    try:
        (end,) = parts_of(lent.race("third", Question="What causes the tides?"), "end")
    finally:
        lent.api.idle = False
    assert lent.api.pids() == pids and badges(end) == {"reference", "identical"}


def seconds(lanes: int, tokens: int, weights: int = 0) -> int:
    """Return the time that a race requests."""
    spec = SimpleNamespace(lanes=("vanilla",) * lanes, max_new_tokens=tokens)
    return zero_gpu.call_seconds(weights, SimpleNamespace(spec=spec))  # type: ignore[arg-type]


def test_the_requested_time_grows_with_lanes_and_tokens() -> None:
    assert seconds(1, 8) < seconds(4, 64) < seconds(4, 128) < seconds(4, 128, 4_000_000_000) <= zero_gpu.MAX_S
    assert seconds(5, 512) == zero_gpu.MAX_S


def test_a_visitor_who_leaves_stops_the_race_in_its_process(lent: LentApp) -> None:
    def ended(outcome: str) -> str:
        lines = lent.served.ask("GET", "/metrics").text.splitlines()
        return next((line for line in lines if f'outcome="{outcome}"' in line), "")

    # An earlier test's race may still be repeating; it is counted when it ends.
    wait_until(lambda: "specrace_races_running 0.0" in lent.served.ask("GET", "/metrics").text)
    finished, stopped = ended("finished"), ended("stopped")
    key = lent.served.race("fourth", token=TOKEN, **asking(512, Temperature=2.0))["key"]
    with lent.served.watching(key) as answer:
        while b'"kind":"head"' not in answer.readline():
            pass
    # The process has noticed the stop: a race run to its end would count as finished.
    wait_until(lambda: (ended("finished"), ended("stopped")) != (finished, stopped))
    assert ended("finished") == finished
    # After the race is counted, the library releases the GPU, once for each time it was scheduled.
    wait_until(lambda: len(lent.api.of("/release")) >= len(lent.api.of("/schedule")))


def test_a_spent_quota_gets_one_sentence(lent: LentApp) -> None:
    lent.api.quota_left = 5
    try:
        messages = lent.race("fifth")
    finally:
        lent.api.quota_left = None
    assert messages[-1]["phase"] == "failed" and not parts_of(messages, "end")
    assert messages[-1]["message"].startswith("Your ZeroGPU quota is spent (You have exceeded your")
    assert messages[-1]["message"].endswith("watch the recorded races, which need no GPU.")
    sentence = zero_gpu.explain_error("ZeroGPU worker error", "GPU task aborted.")
    assert sentence.startswith("ZeroGPU gave this race no GPU to its")


@pytest.mark.parametrize(
    "flags",
    [["--models", "tiny"], ["--keep-outputs"], ["--replay", "race.jsonl"], ["--reranker", "bge-reranker-v2-m3"]],
)
def test_unsupported_flags_are_refused_at_startup(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(zero_gpu.VARIABLE, "true")
    with pytest.raises(InputError, match="GPU"):
        front_door.check(front_door.parse(["--model", "tiny", *flags]))


def test_outside_zero_gpu_the_decorator_has_no_effect(bundled: Workbench) -> None:
    """With the real package, in this process, races have the usual events."""
    runner = zero_gpu.make_runner(bundled.target)
    prepared = bundled.prepare(QUESTION, RaceSpec(("vanilla", "trie"), 8))
    kinds = [type(event).__name__ for event in runner(prepared, lambda: False, lambda _: True)]
    assert kinds[0] == "Started" and kinds[-1] == "Finished" and "Repeated" not in kinds
    events = [event for event in runner(prepared, lambda: True, lambda _: True) if isinstance(event, Finished)]
    assert events[0].stopped


def test_the_servers_process_computes_nothing_on_the_imitated_gpu(tmp_path: Path) -> None:
    """Pinned memory, streams and kernels need a real GPU; only moving the weights is imitated."""
    space = {
        zero_gpu.VARIABLE: "true",
        "SPACES_ZERO_DEVICE_API_URL": "http://127.0.0.1:9",
        "ZEROGPU_OFFLOAD_DIR": str(tmp_path / "offloaded"),
    }
    done = processes.run(["-c", LOADING], env=os.environ | space)
    assert done.returncode == 0, done.stderr
    device, dtype, packed = done.stdout.split()[-3:]
    assert (device, dtype) == ("cuda:0", "bfloat16") and int(packed) > 15_000_000


def test_an_input_error_in_the_forked_call_is_reported(bundled: Workbench) -> None:
    prepared = bundled.prepare(QUESTION, RaceSpec(("vanilla",), 8))
    endless = replace(prepared, prompt=prepared.prompt * 1000)
    assert [type(event) for event in zero_gpu.race_in_call(bundled.target, endless, lambda: False)] == [
        zero_gpu.Refusal
    ]
    with pytest.raises(InputError, match="use fewer passages"):
        list(zero_gpu.make_runner(bundled.target)(endless, lambda: False, lambda _: False))
