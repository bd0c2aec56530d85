"""A server's counters, and what is computed from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specrace.cli.main import main
from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.servers.connection import Connection
from specrace.servers.metrics import Counts, best_draft, read_counts, shorter_drafts
from tests.servers.replies import EXCHANGES, Answer, Route, serving

# Cost curves on which further rows cost nothing, and on which each costs as much as the first.
FLAT = CostCurve((1, 2, 100), (1.0, 1.0, 1.0))
STEEP = CostCurve((1, 2, 3), (1.0, 2.0, 3.0))


def page(text: str) -> Answer:
    """A metrics page."""
    return Answer([text.encode()], kind="text/plain; version=0.0.4")


def counts_of(*pages: Route) -> list[Counts]:
    """The counts read from these pages, which the server sends one after another."""
    answers = iter(pages)

    def answer(_: object) -> Answer:
        route = next(answers)
        assert isinstance(route, Answer)
        return route

    with serving({"/metrics": answer}) as address, Connection(address) as connection:
        return [read_counts(connection) for _ in pages]


VLLM = (EXCHANGES / "vllm-metrics.txt").read_text()


def test_vllms_counters_are_read() -> None:
    (counts,) = counts_of(page(VLLM))
    # Drafts, draft tokens, accepted tokens, accepted tokens by position, and output tokens.
    assert counts == Counts("vLLM", 374, 1496, 1257, (330, 315, 310, 302), 1967)
    assert counts.tokens_per_draft == 1 + 1257 / 374 and counts.acceptance_rate == 1257 / 1496
    assert counts.tokens_per_step == 1967 / (1967 - 1257)
    assert sum(counts.by_position) == counts.accepted


def test_counters_of_several_replicas_and_models_are_added() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"')
    lines = [line for line in other.splitlines() if not line.startswith("#")]
    (counts,) = counts_of(page(VLLM + "\n".join(lines) + "\n"))
    assert counts == Counts("vLLM", 748, 2992, 2514, (660, 630, 620, 604), 3934)


def test_llama_cpps_counters_are_read_without_positions() -> None:
    (counts,) = counts_of(page((EXCHANGES / "llama-cpp-metrics.txt").read_text()))
    assert counts == Counts("llama.cpp", 1, 8, 8, (), 13)
    assert counts.rates == () and counts.tokens_per_step == 13 / 5


def test_two_readings_give_what_happened_between_them() -> None:
    later = VLLM.replace(" 374.0", " 474.0").replace(" 1496.0", " 1896.0").replace(" 1257.0", " 1357.0")
    later = later.replace(" 330.0", " 400.0").replace(" 1967.0", " 2267.0")
    before, after = counts_of(page(VLLM), page(later))
    assert after.since(before) == Counts("vLLM", 100, 400, 100, (70, 0, 0, 0), 300)
    with pytest.raises(InputError, match="it was restarted"):
        before.since(after)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not count draft tokens"),
        ("# TYPE up gauge\nup 1\n", "does not count draft tokens"),
        ("<html>{</html>", "not in Prometheus' format"),
        (VLLM.replace('position="0"', 'position="first"'), "not in Prometheus' format"),
        (VLLM.replace(" 374.0", " NaN"), "not in Prometheus' format"),
        (VLLM.replace(" 374.0", " +Inf"), "not in Prometheus' format"),
    ],
)
def test_another_page_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        counts_of(page(text))


def test_a_server_without_the_page_is_refused_in_one_sentence() -> None:
    with (
        serving({}) as address,
        Connection(address) as connection,
        pytest.raises(InputError, match="no page /metrics"),
    ):
        read_counts(connection)


def test_the_gain_of_shorter_drafts_is_computed_from_the_rates_by_position() -> None:
    rates = (0.8, 0.5, 0.1)
    assert [choice.tokens_per_draft for choice in shorter_drafts(rates, FLAT)] == pytest.approx([1.0, 1.8, 2.3, 2.4])
    assert best_draft(shorter_drafts(rates, FLAT)).num_draft == 3
    assert best_draft(shorter_drafts(rates, STEEP)).num_draft == 0


def test_the_command_prints_json_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/metrics": page(VLLM)}) as address:
        assert main(["metrics", f"{address.url}/v1", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["drafts"] == 374 and result["marginal_accept_rates"][0] == 330 / 374
        assert result["best_num_draft"] == 4 and len(result["shorter_drafts"]) == 5
        assert main(["metrics", address.url, "--cost-curve", "assumed-cpu"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "374 steps with a draft, 1257 of 1496 draft tokens accepted (84%)" in out
    assert "2.77 tokens per step over all 1967 tokens" in out


def test_the_command_watches_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/metrics": page(VLLM)}) as address:
        assert main(["metrics", address.url, "--for", "0.01s"]) == 0
    assert "vLLM drafted nothing in 0.01 s; it printed 0 tokens." in capsys.readouterr().out


@pytest.mark.parametrize("duration", ["", "5", "0s", "-1s", "1d", "25h", "infs"])
def test_a_bad_duration_is_refused_in_one_sentence(duration: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "http://127.0.0.1:9", f"--for={duration}"]) == 2
    assert "give a time such as 60s or 5m" in capsys.readouterr().err


def test_a_bad_address_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "127.0.0.1:8000"]) == 2
    assert "is no address of a server" in capsys.readouterr().err


def test_the_recorded_pages_hold_no_path_of_a_machine() -> None:
    for file in Path(EXCHANGES).iterdir():
        text = file.read_text()
        assert "/tmp" not in text and "/root" not in text and "/work" not in text, file.name
