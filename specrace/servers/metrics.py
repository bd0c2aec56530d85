"""What a running server counted: the speculative-decoding counters of its Prometheus page. No prompt is sent.

The counters are named as in vLLM 0.32.0 and in llama.cpp's server (xllamacpp 2026.10), whose pages were recorded
(tests/servers/exchanges). SGLang's page is not supported, because none could be recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.parser import text_string_to_metric_families

from specrace.core.cost_curve import CostCurve
from specrace.core.errors import InputError
from specrace.servers.connection import Connection

# Engine -> the names of its counters: drafts, draft tokens, accepted tokens, those by position, and generated tokens.
COUNTERS: Mapping[str, tuple[str, str, str, str, str]] = {
    "vLLM": (
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "vllm:generation_tokens_total",
    ),
    "llama.cpp": (
        "llamacpp:spec_decode_num_drafts_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
        "",
        "llamacpp:tokens_predicted_total",
    ),
}
# The label with a counter's position in the draft, counted from 0.
POSITION = "position"
# Counts at later positions are left out, because a page could name any position.
MAX_POSITIONS = 1024


@dataclass(frozen=True)
class Counts:
    """A server's counters, summed over its models and replicas.

    `drafts`: the steps that had a draft. `by_position`[i]: the drafts of which at least i + 1 tokens were accepted;
    empty if the server does not count that. `accepted` includes tokens past the end of a text.
    """

    engine: str
    drafts: int
    drafted: int
    accepted: int
    by_position: tuple[int, ...]
    tokens: int

    def since(self, before: Counts) -> Counts:
        """The counts between two readings. Raises InputError if the server was restarted in between."""
        width = len(self.by_position)
        earlier = (*before.by_position, *[0] * width)[:width]
        difference = Counts(
            self.engine,
            self.drafts - before.drafts,
            self.drafted - before.drafted,
            self.accepted - before.accepted,
            tuple(now - then for now, then in zip(self.by_position, earlier, strict=True)),
            self.tokens - before.tokens,
        )
        numbers = (difference.drafts, difference.drafted, difference.accepted, difference.tokens)
        if self.engine != before.engine or min(*numbers, *difference.by_position, 0) < 0:
            raise InputError("The server's counters fell while they were watched: it was restarted; watch it again.")
        return difference

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_draft(self) -> float | None:
        """Tokens that a step with a draft emitted: the accepted ones and one more; None without drafts."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens per step, over all steps, including those without a draft; None if nothing was generated.

        A step emits its accepted tokens and one more, so there are as many steps as tokens that were not accepted.
        """
        steps = self.tokens - self.accepted
        return self.tokens / steps if steps > 0 else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The share of drafts of which at least the first i + 1 tokens were accepted, by i."""
        return tuple(count / self.drafts for count in self.by_position) if self.drafts else ()


@dataclass(frozen=True)
class ShorterDraft:
    """What drafts of at most `num_draft` tokens would bring: tokens in a step with a draft, and that step's speedup."""

    num_draft: int
    tokens_per_draft: float
    speedup: float


def shorter_drafts(rates: Sequence[float], curve: CostCurve) -> list[ShorterDraft]:
    """What drafts of 0, 1, 2, ... tokens would bring on a cost curve, one request at a time.

    `rates`: the share of drafts accepted up to each position. A shorter draft keeps its first accepted tokens, so it
    brings 1 + the sum of the rates of its positions.
    """
    gains = accumulate(rates, initial=1.0)
    return [ShorterDraft(size, gain, gain / curve.at(1 + size)) for size, gain in enumerate(gains)]


def best_draft(choices: Sequence[ShorterDraft]) -> ShorterDraft:
    """The draft size with the largest speedup; ties go to the smallest."""
    return max(choices, key=lambda choice: choice.speedup)


def read_counts(connection: Connection) -> Counts:
    """The counters of a running server. Raises InputError."""
    text = connection.find_text("/metrics")
    if text is None:
        raise connection.fault("has no page /metrics; start llama.cpp's server with --metrics")
    return parse_counts(text, connection)


def parse_counts(text: str, connection: Connection) -> Counts:
    """The counters in a Prometheus page. Raises InputError for a page without them."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    names_by_position = {by_position for _, _, _, by_position, _ in COUNTERS.values()}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
                if sample.name in names_by_position:
                    index = int(sample.labels[POSITION])
                    positions[index] = positions.get(index, 0.0) + sample.value
        return _counts(sums, positions, connection)
    except (ValueError, KeyError, OverflowError) as error:
        raise connection.fault("has a page /metrics that is not in Prometheus' format") from error


def _counts(sums: Mapping[str, float], positions: Mapping[int, float], connection: Connection) -> Counts:
    """The counts from a page's sums by name. Raises InputError if it has no counters of drafts."""
    for engine, (drafts, drafted, accepted, _, tokens) in COUNTERS.items():
        if drafts in sums and drafted in sums and accepted in sums:
            width = min(max(positions, default=-1) + 1, MAX_POSITIONS)
            by_position = tuple(int(positions.get(index, 0.0)) for index in range(width))
            total = int(sums.get(tokens, 0.0))
            return Counts(engine, int(sums[drafts]), int(sums[drafted]), int(sums[accepted]), by_position, total)
    raise connection.fault(
        "does not count draft tokens on its page /metrics: it runs without speculative decoding, or it is no vLLM and "
        "no llama.cpp"
    )
