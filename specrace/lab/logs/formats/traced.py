"""What formats of tracers share: rows that are not a model's, and calls that are traced twice."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from specrace.lab.logs.formats.base import Exchange, Format, Row

_IDS = ("spanId", "span_id", "context.span_id", "id")
_TRACES = ("traceId", "trace_id", "context.trace_id")
_PARENTS = (
    "parentSpanId",
    "parent_span_id",
    "parentObservationId",
    "parent_observation_id",
    "parent_run_id",
    "parent_id",
    "span_parents",
)
_NESTED = "a framework and the library that it calls traced one call each, one within the other, with the same answer"


class NestedCalls:
    """Finds calls that are traced twice: a framework's span, and within it the span of the library that it calls.

    Either may come first in the file. Calls beside one another may have the same answer, so only a span and the one
    directly above it are compared.
    """

    def __init__(self) -> None:
        # (span, answer) of the spans read so far, and (the span above, answer) of the same spans.
        self._read = set[tuple[str, str]]()
        self._above = set[tuple[str, str]]()

    def leave_out(self, span: Row, exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
        """The exchanges of a span; those that the span above it, or one within it, has are left out."""
        # Some tracers nest the ids in `context`.
        context = span.get("context")
        fields = (
            span | {f"context.{key}": value for key, value in context.items()} if isinstance(context, dict) else span
        )
        trace = next((fields[name] for name in _TRACES if fields.get(name)), "")
        span_id = next(iter(_names(fields, _IDS)), "")
        parents = _names(fields, _PARENTS)
        for exchange in exchanges:
            if exchange.left_out:
                yield exchange
                continue
            answer = json.dumps([trace, exchange.output], sort_keys=True, default=str).encode()
            digest = hashlib.blake2b(answer, digest_size=8).hexdigest()
            if (span_id, digest) in self._above or any((parent, digest) in self._read for parent in parents):
                yield Exchange("", "", exchange.id, left_out=_NESTED)
                continue
            if span_id:
                self._read.add((span_id, digest))
            self._above.update((parent, digest) for parent in parents)
            yield exchange


def _names(about: Row, keys: Iterable[str]) -> list[str]:
    """The values of the first of these fields that has text, a number or a list of them, as text."""
    value: Any = next((about[key] for key in keys if about.get(key)), [])
    return [str(name) for name in (value if isinstance(value, list) else [value]) if isinstance(name, str | int)]


class Traced(Format):
    """Rows of which only some are requests to a model; the others repeat the texts of these, or hold something else.

    `wanted`: what a request's row is, in words for the user.
    """

    wanted: ClassVar[str]

    def __init__(self) -> None:
        self._num_others = self._num_generations = 0
        self._nested = NestedCalls()

    @staticmethod
    @abstractmethod
    def is_generation(row: Row) -> bool:
        """Whether a row is a request to a model."""

    @abstractmethod
    def read_generation(self, row: Row) -> Iterable[Exchange]:
        """The exchanges of a row that is a request to a model."""

    def read(self, row: Row) -> Iterable[Exchange]:
        if not self.is_generation(row):
            self._num_others += 1
            return ()
        self._num_generations += 1
        return self._nested.leave_out(row, self.read_generation(row))

    def end(self) -> Iterable[Exchange]:
        if self._num_others and not self._num_generations:
            yield Exchange("", "", left_out=f"no row of the file is {self.wanted}; export such rows, too")
