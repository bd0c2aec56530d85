"""The shortest possible time of a step: its bytes, counted on real models, over a measured bandwidth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specrace.core import clock
from specrace.model.machine import roofline
from specrace.model.machine.roofline import Roofline, copy_bandwidth, weight_bytes
from tests.models import ARCHITECTURES, tiny_target


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_token_bytes_are_the_bytes_of_a_token_in_the_cache(name: str) -> None:
    """The factors: layers, keys and values, heads, numbers in a head, and bytes of a number."""
    # Key heads: in these two, as many as query heads; in the others, two query heads share one.
    heads = 4 if name in ("gpt2", "gpt-neox") else 2
    assert tiny_target(name).roofline.token_bytes == 2 * 2 * heads * 8 * 4


def test_an_embedding_counts_only_if_it_is_also_the_output_layer() -> None:
    untied, tied = tiny_target("llama", tie_word_embeddings=False), tiny_target("llama", tie_word_embeddings=True)
    # The bytes of an embedding of 32 tokens, each with 32 numbers.
    table = 4 * 32 * 32
    untied_bytes, tied_bytes = (
        4 * sum(parameter.numel() for parameter in target.model.parameters()) for target in (untied, tied)
    )
    assert weight_bytes(untied.model) == untied_bytes - table
    assert weight_bytes(tied.model) == tied_bytes == untied_bytes - table


def test_the_limit_is_bytes_over_bandwidth() -> None:
    small = Roofline(weight_bytes=1_000_000, token_bytes=1_000, bandwidth=1e9)
    assert small.limit_ms(columns=0, rows=0) == pytest.approx(1.0)
    assert small.limit_ms(columns=990, rows=10) == pytest.approx(2.0)
    summary = small.as_json(999)
    assert summary["limit_tokens_per_s"] == pytest.approx(500) and summary["copy_gb_per_s"] == pytest.approx(1.0)


def test_bandwidth_is_bytes_read_and_written_over_the_median_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated copies take 0.02, 0.04, ... 0.14 s; their median is 0.08 s."""
    ends = [sum(range(2, 2 * copy + 1, 2)) / 100 for copy in range(1, 8)]
    readings = iter([0.0, *(time for end in ends[:-1] for time in (end, end)), ends[-1]])
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=readings.__next__))
    monkeypatch.setattr(clock, "waited_ms", lambda: 0.0)
    monkeypatch.setitem(roofline._COPY_BYTES, "cpu", 1000)
    assert copy_bandwidth(torch.device("cpu")) == pytest.approx(2 * 1000 / 0.08)


def test_smaller_blocks_are_copied_if_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement must not fail if the model fills its GPU."""
    ones, sizes = torch.ones, list[int]()

    def allocate_if_small(size: int, **kwargs: Any) -> torch.Tensor:
        sizes.append(size)
        if size > 1 << 20:
            raise torch.OutOfMemoryError("out of memory")
        return ones(size, **kwargs)

    monkeypatch.setattr(roofline.torch, "ones", allocate_if_small)
    monkeypatch.setattr(roofline, "_MIN_COPY_BYTES", 1 << 20)
    monkeypatch.setitem(roofline._COPY_BYTES, "cpu", 1 << 22)
    assert copy_bandwidth(torch.device("cpu")) > 0 and sizes == [1 << 22, 1 << 21, 1 << 20]
    monkeypatch.setattr(roofline, "_MIN_COPY_BYTES", 1 << 21)
    with pytest.raises(torch.OutOfMemoryError):
        copy_bandwidth(torch.device("cpu"))


def test_the_roofline_is_measured_once_and_peak_memory_includes_an_allocation() -> None:
    target = tiny_target("llama")
    assert target.roofline is target.roofline
    assert 0 < target.step_limit_ms(10, 1) < target.step_limit_ms(100_000, 1)
    target.reset_peak_memory()
    before = target.peak_memory()
    if before is None:
        pytest.skip("this system does not report peak memory")
    # One block may not raise the peak, because the system may remove other pages of this process at the same time.
    blocks: list[torch.Tensor] = []
    while len(blocks) < 16 and (target.peak_memory() or 0) - before < 0.8 * 4 * (1 << 24):
        blocks.append(torch.ones(1 << 24))
    assert blocks and (target.peak_memory() or 0) - before >= 0.8 * 4 * (1 << 24)


def test_measure_bandwidth_measures_a_cpu_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bandwidth of a shared machine changes by a factor of two within minutes."""
    bandwidths = iter((1e9, 2e9, 4e9))
    monkeypatch.setattr("specrace.model.target.copy_bandwidth", lambda _: next(bandwidths))
    target = tiny_target("llama")
    first = target.step_limit_ms(100, 1)
    assert target.step_limit_ms(100, 1) == first
    target.measure_bandwidth()
    assert target.step_limit_ms(100, 1) == pytest.approx(first / 2)
    target.measure_bandwidth()
    assert target.step_limit_ms(100, 1) == pytest.approx(first / 4)
