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

from specrace.cli import app as app_command
from specrace.core.errors import InputError
from specrace.core.events import Finished, Step
from specrace.engine.request import RaceRequest
from specrace.engine.spec import RaceSpec
from specrace.ui.races import zero_gpu
from specrace.workbench import Workbench
from tests import processes
from tests.ui.device_api import DeviceApi, app_on_zero_gpu, device_api
from tests.ui.served import Served, read_until
from tests.ui.waiting import wait_until

LANES = ("vanilla", "trie", "rest", "fusion")
QUESTION = "Why does bread rise?"
TOKENS = 24
# About the size of the bundled model.
BUNDLED_WEIGHT_BYTES = 30_000_000
# A Space sends such a token with a visitor's requests; the GPU's time counts against this visitor's quota.
VISITOR_TOKEN = "a-header.e30.a-signature"


# Loads a model onto an imitated "cuda". The first lines add names that `spaces` looks up and torch for CPUs lacks.
LOADING = """
import torch
torch._C._cuda_init = torch.cuda._is_in_bad_fork = bool
torch.version.cuda = "13.0"
from specrace.ui.races import zero_gpu
zero_gpu.imitate_cuda()
import spaces.zero
from specrace.model.loading import load_target
target = load_target(device="auto", ready=False)
zero_gpu.make_runner(target)
print(target.device, target.describe()["dtype"], spaces.zero.torch.pack())
"""


@dataclass
class ZeroGpuApp:
    """An app on ZeroGPU, its process id, and the device API that lends the app a GPU."""

    served: Served
    api: DeviceApi
    pid: int

    def race(self, session: str, **changes: Any) -> list[dict[str, Any]]:
        """Race as the page does; returns the messages."""
        key = self.served.race(session, token=VISITOR_TOKEN, **race_values(TOKENS, **changes))["key"]
        with self.served.watching(key) as answer:
            lines = answer.read().decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def race_values(tokens: int, **changes: Any) -> dict[str, Any]:
    """Return the values that the page sends, by label."""
    return {"New tokens": tokens, "Lanes": list(LANES), "Question": QUESTION, **changes}


def badges(end: dict[str, Any]) -> set[str]:
    """Return the kinds of the lanes' badges, which say how a lane's text compares with vanilla's, the reference."""
    return {row["badge"][0] for row in end["results"]}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, bundled: Workbench) -> Iterator[ZeroGpuApp]:  # noqa: ARG001
    """One app for all tests. It uses the document index that the fixture `bundled` has built."""
    folder = tmp_path_factory.mktemp("space")
    with device_api() as (api, address), app_on_zero_gpu(address, folder, "--model", "tiny") as (process, port):
        yield ZeroGpuApp(Served(port, folder), api, process.pid)


def parts_of(messages: list[dict[str, Any]], kind: str) -> list[Any]:
    """Return the parts in all messages of one kind."""
    return [part for message in messages if message["kind"] == kind for part in message["parts"]]


def test_startup_is_reported_before_the_page_is_served(app: ZeroGpuApp) -> None:
    assert app.api.requests[0][0] == "/startup-report" and len(app.api.parameters_of("/startup-report")) == 1


def test_a_race_on_zero_gpu_equals_one_without_it(app: ZeroGpuApp, bundled: Workbench) -> None:
    messages = app.race("first")
    events = list(bundled.ask(RaceRequest(QUESTION, RaceSpec(LANES, TOKENS))))
    (end,) = parts_of(messages, "end")
    finished = next(event for event in events if isinstance(event, Finished))
    assert badges(end) == {"reference", "identical"}
    assert [row["lane"] for row in end["results"]] == [lane.lane for lane in finished.lanes]
    for lane in LANES:
        zero_gpu_steps = [step["event"] for step in parts_of(messages, "step") if step["event"]["lane"] == lane]
        local_steps = [event for event in events if isinstance(event, Step) and event.lane == lane]
        assert "".join("".join(step["texts"]) for step in zero_gpu_steps) == "".join(
            "".join(step.texts) for step in local_steps
        )
        # Fusion measures how long drafting takes, so its drafts may differ between runs; its text may not.
        assert [step["texts"] for step in zero_gpu_steps] == [
            list(step.texts) for step in local_steps
        ] or lane == "fusion"


def test_each_call_gets_a_new_process_unless_one_is_kept_idle(app: ZeroGpuApp) -> None:
    """The call also requests time from the visitor's quota."""
    before, scheduled = len(app.api.pids()), len(app.api.parameters_of("/schedule"))
    assert parts_of(app.race("second"), "end")
    pids = app.api.pids()
    assert len({app.pid, *pids}) == len(pids) + 1 and len(pids) == before + 1
    requests = app.api.parameters_of("/schedule")
    assert {parameters["token"] for parameters in requests} == {VISITOR_TOKEN}
    assert int(requests[scheduled]["durationSeconds"]) == pytest.approx(
        requested_seconds(len(LANES), TOKENS, BUNDLED_WEIGHT_BYTES), abs=1
    )
    app.api.idle = True
    try:
        (end,) = parts_of(app.race("third", Question="What causes the tides?"), "end")
    finally:
        app.api.idle = False
    assert app.api.pids() == pids and badges(end) == {"reference", "identical"}


def requested_seconds(lanes: int, tokens: int, weight_bytes: int = 0) -> int:
    """Return the time that a race requests."""
    spec = SimpleNamespace(lanes=("vanilla",) * lanes, max_new_tokens=tokens)
    return zero_gpu.call_seconds(weight_bytes, SimpleNamespace(spec=spec))  # type: ignore[arg-type]


def test_the_requested_time_grows_with_lanes_and_tokens() -> None:
    assert (
        requested_seconds(1, 8)
        < requested_seconds(4, 64)
        < requested_seconds(4, 128)
        < requested_seconds(4, 128, 4_000_000_000)
        <= zero_gpu.MAX_S
    )
    assert requested_seconds(5, 512) == zero_gpu.MAX_S


def test_a_visitor_who_leaves_stops_the_race_in_its_process(app: ZeroGpuApp) -> None:
    def ended_races(outcome: str) -> str:
        """The line of the metrics that counts the races with this outcome."""
        lines = app.served.ask("GET", "/metrics").text.splitlines()
        return next((line for line in lines if f'outcome="{outcome}"' in line), "")

    # An earlier test's race may still be repeating; it is counted when it ends.
    wait_until(lambda: "specrace_races_running 0.0" in app.served.ask("GET", "/metrics").text)
    finished, stopped = ended_races("finished"), ended_races("stopped")
    key = app.served.race("fourth", token=VISITOR_TOKEN, **race_values(512, Temperature=2.0))["key"]
    with app.served.watching(key) as answer:
        read_until(answer, b"head")
    # If the process had not noticed the stop, the race would count as finished.
    wait_until(lambda: (ended_races("finished"), ended_races("stopped")) != (finished, stopped))
    assert ended_races("finished") == finished
    # After the race is counted, the library releases the GPU, once for each time it was scheduled.
    wait_until(lambda: len(app.api.parameters_of("/release")) >= len(app.api.parameters_of("/schedule")))


def test_a_spent_quota_gets_one_sentence(app: ZeroGpuApp) -> None:
    app.api.quota_left = 5
    try:
        messages = app.race("fifth")
    finally:
        app.api.quota_left = None
    assert messages[-1]["phase"] == "failed" and not parts_of(messages, "end")
    assert messages[-1]["message"].startswith("Your ZeroGPU quota is spent (You have exceeded your")
    assert messages[-1]["message"].endswith("watch the recorded races, which need no GPU.")
    sentence = zero_gpu.explain_error("ZeroGPU worker error", "GPU task aborted.")
    assert sentence.startswith("ZeroGPU did not give this race a GPU until its end")


@pytest.mark.parametrize(
    "flags",
    [["--models", "tiny"], ["--keep-outputs"], ["--replay", "race.jsonl"], ["--reranker", "bge-reranker-v2-m3"]],
)
def test_unsupported_flags_are_refused_at_startup(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(zero_gpu.VARIABLE, "true")
    with pytest.raises(InputError, match="GPU"):
        app_command.read_config(app_command.parse(["--model", "tiny", *flags]))


def test_outside_zero_gpu_the_decorator_has_no_effect(bundled: Workbench) -> None:
    """Outside ZeroGPU, with the real package, a race has the usual events."""
    runner = zero_gpu.make_runner(bundled.target)
    prepared = bundled.prepare(RaceRequest(QUESTION, RaceSpec(("vanilla", "trie"), 8)))
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
    result = processes.run(["-c", LOADING], env=os.environ | space)
    assert result.returncode == 0, result.stderr
    # The bundled model's weights take about 15 MB in bfloat16.
    device, dtype, packed = result.stdout.split()[-3:]
    assert (device, dtype) == ("cuda:0", "bfloat16") and int(packed) > 15_000_000


def test_an_input_error_in_the_forked_call_is_reported(bundled: Workbench) -> None:
    prepared = bundled.prepare(RaceRequest(QUESTION, RaceSpec(("vanilla",), 8)))
    too_long = replace(prepared, prompt=prepared.prompt * 1000)
    assert [type(event) for event in zero_gpu.race_in_call(bundled.target, too_long, lambda: False)] == [
        zero_gpu.Refusal
    ]
    with pytest.raises(InputError, match="use fewer passages"):
        list(zero_gpu.make_runner(bundled.target)(too_long, lambda: False, lambda _: False))
