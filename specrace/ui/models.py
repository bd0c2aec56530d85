"""The models that a visitor may choose from, and the last one that was chosen. It loads on the worker's thread only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.errors import InputError

if TYPE_CHECKING:
    from specrace.workbench import Workbench


class Models:
    """`known`: name -> folder or hub id; `own`: what the server was started with. Nothing else is ever loaded.

    One model beside the server's own is kept: a second choice takes the place of the first.
    """

    def __init__(self, own: str | Path = "", known: Mapping[str, str | Path] | None = None, dtypes: Sequence[str] = ()):
        self.own = own
        self.known = dict(known or {})
        self.dtypes = tuple(dtypes)
        self._choice = ("", "")
        self._chosen: Workbench | None = None

    def check(self, model: str, dtype: str) -> None:
        """Raises InputError for a model or a dtype that is not offered; "" is what the server was started with."""
        for kind, value, choices in (("model", model, tuple(self.known)), ("dtype", dtype, self.dtypes)):
            if value and value not in choices:
                raise InputError(f"There is no {kind} {value[:60]!r} here; choose from {', '.join(choices) or 'none'}.")

    def bench(self, bench: Workbench, model: str, dtype: str) -> Workbench:
        """`bench` with the chosen model in the place of its own. Raises InputError where that cannot be loaded."""
        self.check(model, dtype)
        if not model and (not dtype or dtype == bench.target.describe()["dtype"]):
            return bench
        if self._chosen is None or self._choice != (model, dtype):
            # What was chosen before goes first: the two might not fit side by side.
            self._chosen = None
            self._chosen = bench.with_model(self.known[model] if model else self.own, dtype or None)
            self._choice = (model, dtype)
        if self._chosen.retriever is bench.retriever:
            return self._chosen
        # A visitor's own documents.
        return bench.with_target(self._chosen.target)
