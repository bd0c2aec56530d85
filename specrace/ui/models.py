"""The models that visitors may choose, and the one chosen last. They load on the worker's thread only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.errors import InputError

if TYPE_CHECKING:
    from specrace.workbench import Workbench


class Models:
    """`known` maps names to folders or hub ids, `own` is the server's model; no other is ever loaded.

    One chosen model is kept beside the server's own; a new choice replaces it.
    """

    def __init__(self, own: str | Path = "", known: Mapping[str, str | Path] | None = None, dtypes: Sequence[str] = ()):
        self.own = own
        self.known = dict(known or {})
        self.dtypes = tuple(dtypes)
        self._choice = ("", "")
        self._chosen: Workbench | None = None

    def offer(self, name: str) -> None:
        """Add a model with a short name to those that may be chosen."""
        self.known[name] = name

    def check(self, model: str, dtype: str) -> None:
        """Raises InputError for a model or a dtype that is not offered; "" stands for the server's own."""
        for kind, value, choices in (("model", model, tuple(self.known)), ("dtype", dtype, self.dtypes)):
            if value and value not in choices:
                raise InputError(f"There is no {kind} {value[:60]!r} here; choose from {', '.join(choices) or 'none'}.")

    def ready(self, bench: Workbench, model: str = "", dtype: str = "", own_passages: int | None = None) -> str:
        """What the next race runs on: the model of this choice, and `bench`'s passages or so many of one's own."""
        about = bench.target.describe()
        if self._chosen is not None and self._choice == (model, dtype):
            about = self._chosen.target.describe()
        elif model or dtype:
            about |= {"model": model or about["model"], "dtype": dtype or ("" if model else about["dtype"])}
        facts = [str(about[name]) for name in ("model", "dtype", "device") if about[name]]
        count, whose = (bench.num_passages, "") if own_passages is None else (own_passages, " of your own documents")
        return f"Ready: {', '.join(facts)}, {count:,} passage{'s' * (count != 1)}{whose}"

    def bench(self, bench: Workbench, model: str, dtype: str) -> Workbench:
        """`bench` with the chosen model instead of its own. Raises InputError where that cannot be loaded."""
        self.check(model, dtype)
        if not model and (not dtype or dtype == bench.target.describe()["dtype"]):
            return bench
        if self._chosen is None or self._choice != (model, dtype):
            # Free the previous choice first: both may not fit in memory.
            self._chosen = None
            self._chosen = bench.with_model(self.known[model] if model else self.own, dtype or None)
            self._choice = (model, dtype)
        if self._chosen.retriever is bench.retriever:
            return self._chosen
        # A visitor's own documents.
        return bench.with_target(self._chosen.target)
