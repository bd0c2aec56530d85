"""What is measured of one request to a server, and the order in which servers are asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from specrace.lab.logs.formats.base import Tokens
from specrace.lab.logs.formats.measured import Measured, read_measured

# The number of a request that is sent before a block, so that the server is warm; it does not count.
WARM_UP = -1


@dataclass(frozen=True)
class Question:
    """A prompt as token ids; `category` groups the results."""

    id: str
    category: str
    prompt: Tokens


class Block(NamedTuple):
    """The questions that one server is sent, `concurrency` at a time; `repetition` counts from 0."""

    server: str
    concurrency: int
    repetition: int


def plan_blocks(servers: Sequence[str], concurrencies: Sequence[int], repetitions: int) -> Iterator[Block]:
    """The blocks in the order in which they are measured.

    Servers take turns, and every repetition begins with the next server: a machine that slows down over time then slows
    down all servers alike.
    """
    for repetition in range(repetitions):
        first = repetition % len(servers)
        for server in (*servers[first:], *servers[:first]):
            for concurrency in concurrencies:
                yield Block(server, concurrency, repetition)


@dataclass(frozen=True)
class Sample:
    """One answer of a server, as the client saw it.

    `number`: the question's index, or WARM_UP. `session`: how many times the comparison had been started before;
    `start_ms` and `end_ms` count from the start of the block in that session. `times_ms`: when each chunk arrived, in
    ms since the request was sent. `sizes`: the number of tokens in each chunk. `end`: why the answer ended, as a `Step`
    says it. `counts`: the server's counts of its drafts, under vLLM's names.
    """

    block: Block
    number: int
    session: int
    start_ms: float
    end_ms: float
    times_ms: tuple[float, ...]
    sizes: tuple[int, ...]
    output: Tokens
    end: str
    counts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def middle_ms(self) -> float:
        """The time halfway between the first chunk and the last, since the start of the block."""
        return self.start_ms + (self.times_ms[0] + self.times_ms[-1]) / 2

    def printed_by(self, ms: float) -> Tokens:
        """The tokens that had arrived at a time since the start of the block."""
        sizes = (size for size, time in zip(self.sizes, self.times_ms, strict=True) if self.start_ms + time <= ms)
        return self.output[: sum(sizes)]

    @property
    def decode_ms(self) -> float:
        """The time from the first chunk to the last."""
        return self.times_ms[-1] - self.times_ms[0]

    @property
    def decode_tokens(self) -> int:
        """The tokens after the first chunk."""
        return sum(self.sizes[1:])

    @property
    def gaps_ms(self) -> list[float]:
        """The times between chunks."""
        return [late - early for early, late in zip(self.times_ms, self.times_ms[1:], strict=False)]

    def measured(self) -> Measured | None:
        """The server's counts of its drafts; None if it has none, or if they contradict the answer."""
        try:
            return read_measured(dict(self.counts), len(self.output))
        except ValueError:
            return None

    def as_json(self) -> dict[str, Any]:
        """The sample as a JSON object, which `from_json` reads."""
        return {**asdict(self), "block": list(self.block), "times_ms": [round(time, 3) for time in self.times_ms]}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Read what `as_json` returns. Raises ValueError, TypeError or KeyError for anything else."""
        server, concurrency, repetition = row["block"]
        sample = cls(
            block=Block(str(server), int(concurrency), int(repetition)),
            number=int(row["number"]),
            session=int(row["session"]),
            start_ms=float(row["start_ms"]),
            end_ms=float(row["end_ms"]),
            times_ms=tuple(map(float, row["times_ms"])),
            sizes=tuple(map(int, row["sizes"])),
            output=tuple(map(int, row["output"])),
            end=str(row["end"]),
            counts=dict(row["counts"]),
        )
        if not len(sample.times_ms) == len(sample.sizes) > 0 or sum(sample.sizes) != len(sample.output):
            raise ValueError("the chunks of this answer do not add up to its tokens")
        return sample
