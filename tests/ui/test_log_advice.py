"""A visitor's log, advised on: each engine's settings, ready to paste, with what they rest on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.lab import halving
from specrace.lab.exports import ENGINES
from specrace.lab.presets import find_curve
from specrace.lab.recommend import BATCHES
from specrace.ui import log_advice
from specrace.ui.log_advice import MEASURED, TITLES, advise_log, describe_advice, read_costs
from tests.lab.parts import COPYING, copying, transcript, write, write_log

MEASURED_CURVE = CostCurve((1, 33), (1.0, 2.0), about={"model": "tiny", "device": "cpu"})


def advise(path: Path, curve: str = "assumed-gpu", batch: int = 1) -> Any:
    """What the page gets of a file."""
    costs = read_costs({"curve": curve, "batch": str(batch)}, MEASURED_CURVE)
    tokenizer = {"tokenizer": str(BUNDLED_MODEL), "name": "tiny", "decodes_ids": False, "columns": ""}
    going = advise_log("", json.dumps({"path": str(path), **tokenizer, **costs}).encode())
    told = []
    try:
        while True:
            told.append(json.loads(next(going))["progress"])
    except StopIteration as over:
        assert told
        return json.loads(over.value)["advice"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    looping = transcript([1, 2, 3, 4], [7, 8] * 30)
    return write_log(tmp_path_factory.mktemp("log") / "log.jsonl", [*copying(20), looping])


@pytest.fixture(scope="module")
def advice(log: Path) -> Any:
    return advise(log)


def test_every_engine_has_its_recommendation_and_lines(advice: Any) -> None:
    assert [each["engine"] for each in advice["engines"]] == list(ENGINES) == list(TITLES)
    own = {each["engine"]: each for each in advice["engines"]}
    assert own["vllm"]["export"]["settings"].startswith("--speculative-config '{")
    assert own["tensorrt-llm"]["export"]["settings"].startswith("speculative_config:\n")
    assert own["vllm"]["recommendation"]["lane"].startswith("vllm-")
    assert {each["recommendation"]["lane"] for each in advice["engines"]}.isdisjoint({"jacobi"})
    assert "specrace-settings.json" in own["specrace"]["export"]["files"]
    for each in advice["engines"]:
        found = each["recommendation"]
        assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
        assert "On these 20 requests (480 output tokens)" in each["text"][0] and each["not_tested"]
        assert {group["category"] for group in each["groups"]} == {"copy", "fresh"}
    assert any("jacobi" in each for each in own["specrace"]["not_tested"])
    assert not any("jacobi" in each for each in own["vllm"]["not_tested"])


def test_it_says_what_it_rests_on(advice: Any) -> None:
    assert (advice["requests"], advice["scored"], advice["looping"], advice["left_out"]) == (21, 20, 1, "")
    vllm = advice["engines"][0]
    lanes = [each for each in advice["tried"] if each[0].startswith("vllm-")]
    assert any(each.startswith(f"Of {len(lanes)} settings tried on 16 requests the best") for each in vllm["text"])
    assert {each[3] for each in advice["tried"]} == {16, 20}


def test_costs_decide(log: Path) -> None:
    dear = advise(log, "assumed-cpu", 256)
    assert {each["recommendation"]["lane"] for each in dear["engines"]} == {"vanilla"}
    assert all("in batches of 256," in each["text"][0] for each in dear["engines"])
    # The lines are there for who drafts all the same.
    assert dear["engines"][0]["export"]["settings"].startswith("--speculative-config")


def test_the_costs_that_are_offered_can_be_asked_for() -> None:
    found = describe_advice(MEASURED_CURVE)
    assert found["curves"][0] == (MEASURED, "this machine, measured: tiny, cpu")
    assert MEASURED not in dict(describe_advice(None)["curves"])
    assert read_costs({}, None) == {"curve": ASSUMED_GPU.as_json(), "batch": 1}
    assert read_costs({"curve": MEASURED}, MEASURED_CURVE)["curve"] == MEASURED_CURVE.as_json()
    for gpu in found["gpus"]:
        for size in found["sizes"]:
            name = f"{gpu}-{size}b"
            assert read_costs({"curve": name, "batch": "16"}, None) == {
                "curve": find_curve(name).as_json(), "batch": 16,
            }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"curve": "/etc/passwd"}, "no cost curve '/etc/passwd' here"),
        ({"curve": "h100-9999b"}, "no cost curve 'h100-9999b' here"),
        ({"curve": MEASURED}, "no cost curve 'measured' here"),
        ({"batch": "1e9"}, f"batch size is '1e9'; choose from {', '.join(map(str, BATCHES))}"),
    ],
)
def test_other_costs_are_refused(query: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_costs(query, None)


def test_a_bad_or_endless_log_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^t\.jsonl holds no request that can be scored; this is not JSON"):
        advise(write(tmp_path / "t.jsonl", b"hello"))
    monkeypatch.setattr(log_advice, "MAX_REQUESTS", 2)
    found = advise(write(tmp_path / "t.jsonl", *[COPYING] * 3))
    assert (found["requests"], found["left_out"]) == (2, "the page takes 2 of them")
    reading = iter([0.0, 0.0, 61.0])
    with monkeypatch.context() as patch:
        # Reading takes its half of the time with the first request, and there is time left to try settings on that one.
        patch.setattr(log_advice, "time", SimpleNamespace(monotonic=lambda: next(reading, 61.0)))
        patch.setattr(halving, "time", SimpleNamespace(monotonic=lambda: 61.0))
        found = advise(tmp_path / "t.jsonl")
    assert (found["requests"], found["left_out"]) == (1, "the page takes 1 of them")
    monkeypatch.setattr(log_advice, "TIME_LIMIT_S", -1.0)
    with pytest.raises(InputError, match="begins with a request too long"):
        advise(tmp_path / "t.jsonl")
