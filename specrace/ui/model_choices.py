"""The models that visitors may choose, and the one chosen last. They load on the worker's thread only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.errors import InputError

if TYPE_CHECKING:
    from specrace.workbench import Workbench


class ModelChoices:
    """`known` maps names to folders or hub ids; beside the server's own model no other is ever loaded.

    One chosen model is kept beside the server's own, on the server's documents; a new choice replaces it.
    """

    def __init__(self, known: Mapping[str, str | Path] | None = None, dtypes: Sequence[str] = ()) -> None:
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

    def ready(self, workbench: Workbench, model: str = "", dtype: str = "", own_passages: int | None = None) -> str:
        """What the next race runs on: the model of this choice, and `bench`'s passages or so many of one's own."""
        about = workbench.target.describe()
        model, dtype = choice = self._settle(workbench, model, dtype)
        if self._chosen is not None and self._choice == choice:
            about = self._chosen.target.describe()
        elif model or dtype:
            about |= {"model": model or about["model"], "dtype": dtype or ("" if model else about["dtype"])}
        facts = [str(about[name]) for name in ("model", "dtype", "device") if about[name]]
        count, whose = (
            (workbench.num_passages, "") if own_passages is None else (own_passages, " of your own documents")
        )
        return f"Ready: {', '.join(facts)}, {count:,} passage{'s' * (count != 1)}{whose}"

    def workbench(self, shared: Workbench, own: Workbench, model: str, dtype: str) -> Workbench:
        """`own` with the chosen model: the `shared` workbench, or a visitor's on the same target.

        Raises InputError where the model cannot be loaded.
        """
        self.check(model, dtype)
        model, dtype = choice = self._settle(shared, model, dtype)
        if choice == ("", ""):
            return own
        if self._chosen is None or self._choice != choice:
            # Free the previous choice first: both may not fit in memory.
            self._chosen = None
            self._chosen = shared.with_model(self.known[model] if model else shared.model, dtype or None)
            self._choice = choice
        # What is kept never has a visitor's documents.
        return self._chosen if own is shared else own.with_target(self._chosen.target)

    def _settle(self, shared: Workbench, model: str, dtype: str) -> tuple[str, str]:
        """The choice, with "" for what the server has loaded anyway, and its --dtype for another model."""
        if model in self.known and shared.has_model(self.known[model]):
            model = ""
        if model:
            return model, dtype or shared.dtype or ""
        return "", "" if dtype and dtype == shared.target.describe()["dtype"] else dtype
