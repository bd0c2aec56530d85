"""Advice on a visitor's log: each engine's settings, ready to paste, and the evidence for them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError
from specrace.lab.advice import halving
from specrace.lab.advice.exports import ENGINES
from specrace.lab.advice.presets import find_curve
from specrace.lab.advice.recommend import BATCHES
from specrace.ui.helper import log_advice
from specrace.ui.helper.log_advice import MEASURED, TITLES, advise_log, describe_advice, read_costs
from tests.lab.parts import COPYING, mostly_copying, transcript, write, write_log

# On this machine a forward over 33 rows takes twice as long as one over a single row.
MEASURED_CURVE = CostCurve((1, 33), (1.0, 2.0), about={"model": "tiny", "device": "cpu"})


def advise(path: Path, curve: str = "assumed-gpu", batch: int = 1) -> Any:
    """Return the advice that the page gets for a file."""
    costs = read_costs({"curve": curve, "batch": str(batch)}, MEASURED_CURVE)
    tokenizer = {"tokenizer": str(BUNDLED_MODEL), "name": "tiny", "decodes_ids": False, "columns": ""}
    task = advise_log("", json.dumps({"path": str(path), **tokenizer, **costs}).encode())
    reports = []
    try:
        while True:
            reports.append(json.loads(next(task))["progress"])
    except StopIteration as finished:
        assert reports
        return json.loads(finished.value)["advice"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # An output that repeats itself is set aside, because it is unusually easy to draft.
    looping = transcript([1, 2, 3, 4], [7, 8] * 30)
    return write_log(tmp_path_factory.mktemp("log") / "log.jsonl", [*mostly_copying(20), looping])


@pytest.fixture(scope="module")
def advice(log: Path) -> Any:
    return advise(log)


def test_every_engine_has_a_recommendation_and_settings_to_paste(advice: Any) -> None:
    assert [engine["engine"] for engine in advice["engines"]] == list(ENGINES) == list(TITLES)
    by_engine = {engine["engine"]: engine for engine in advice["engines"]}
    assert by_engine["vllm"]["export"]["settings"].startswith("--speculative-config '{")
    assert by_engine["tensorrt-llm"]["export"]["settings"].startswith("speculative_config:\n")
    assert by_engine["vllm"]["recommendation"]["lane"].startswith("vllm-")
    assert {engine["recommendation"]["lane"] for engine in advice["engines"]}.isdisjoint({"jacobi"})
    assert "specrace-settings.json" in by_engine["specrace"]["export"]["files"]
    for engine in advice["engines"]:
        recommendation = engine["recommendation"]
        assert recommendation["speedup_low"] <= recommendation["speedup"] <= recommendation["speedup_high"]
        # The log's looping request does not count; the others have 24 output tokens each.
        assert "On these 20 requests (480 output tokens)" in engine["text"][0] and engine["not_tested"]
        assert {group["category"] for group in engine["groups"]} == {"copy", "fresh"}
    # Jacobi drafts from the model's own predictions, which no log has.
    assert any("jacobi" in sentence for sentence in by_engine["specrace"]["not_tested"])
    assert not any("jacobi" in sentence for sentence in by_engine["vllm"]["not_tested"])


def test_the_advice_states_its_evidence(advice: Any) -> None:
    assert (advice["requests"], advice["scored"], advice["looping"], advice["left_out"]) == (21, 20, 1, "")
    vllm = advice["engines"][0]
    # Each setting that was tried is a list: its first item is the lane, its fourth the number of requests.
    settings = [setting for setting in advice["tried"] if setting[0].startswith("vllm-")]
    assert any(
        sentence.startswith(f"Of {len(settings)} settings tried on 16 requests the best") for sentence in vllm["text"]
    )
    # All settings are tried on 16 requests, and the best ones on all 20.
    assert {setting[3] for setting in advice["tried"]} == {16, 20}


def test_when_costs_outweigh_the_gain_vanilla_is_recommended(log: Path) -> None:
    advice_at_high_costs = advise(log, "assumed-cpu", 256)
    assert {engine["recommendation"]["lane"] for engine in advice_at_high_costs["engines"]} == {"vanilla"}
    assert all("in batches of 256," in engine["text"][0] for engine in advice_at_high_costs["engines"])
    # The settings are shown nevertheless, for users who want to draft anyway.
    assert advice_at_high_costs["engines"][0]["export"]["settings"].startswith("--speculative-config")


def test_every_offered_cost_curve_is_accepted() -> None:
    offered = describe_advice(MEASURED_CURVE)
    assert offered.curves[0] == (MEASURED, "this machine, measured: tiny, cpu")
    assert MEASURED not in dict(describe_advice(None).curves)
    assert read_costs({}, None) == {"curve": ASSUMED_GPU.as_json(), "batch": 1}
    assert read_costs({"curve": MEASURED}, MEASURED_CURVE)["curve"] == MEASURED_CURVE.as_json()
    for gpu in offered.gpus:
        for size in offered.sizes:
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
def test_unknown_costs_are_refused(query: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_costs(query, None)


def test_a_bad_or_overlong_log_gets_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^t\.jsonl holds no request that can be scored; this is not JSON"):
        advise(write(tmp_path / "t.jsonl", b"hello"))
    monkeypatch.setattr(log_advice, "MAX_REQUESTS", 2)
    advice = advise(write(tmp_path / "t.jsonl", *[COPYING] * 3))
    assert (advice["requests"], advice["left_out"]) == (2, "the page takes 2 of them")
    clock_readings = iter([0.0, 0.0, 61.0])
    with monkeypatch.context() as patch:
        # The first request uses up the time for reading, half of the total; settings are tried on that request alone.
        patch.setattr(log_advice, "time", SimpleNamespace(monotonic=lambda: next(clock_readings, 61.0)))
        patch.setattr(halving, "time", SimpleNamespace(monotonic=lambda: 61.0))
        advice = advise(tmp_path / "t.jsonl")
    assert (advice["requests"], advice["left_out"]) == (1, "the page takes 1 of them")
    monkeypatch.setattr(log_advice, "TIME_LIMIT_S", -1.0)
    with pytest.raises(InputError, match="begins with a request too long"):
        advise(tmp_path / "t.jsonl")
