"""The models that visitors may choose, and the one chosen last. Models are loaded on the worker's thread only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specrace.core.errors import InputError

if TYPE_CHECKING:
    from specrace.workbench import Workbench


class ModelChoices:
    """The models and dtypes on offer. `offered` maps names to folders or hub ids; no other model is ever loaded.

    `has_heads`: whether the server's default model has trained heads; `has_draft_model`: whether it has a draft model.

    The default model always stays loaded. The model that a visitor chose last also stays loaded, in a workbench (the
    model with the server's documents), until another one is chosen.
    """

    def __init__(
        self,
        offered: Mapping[str, str | Path] | None = None,
        dtypes: Sequence[str] = (),
        *,
        has_heads: bool = False,
        has_draft_model: bool = False,
    ) -> None:
        self.offered, self.has_heads, self.has_draft_model = dict(offered or {}), has_heads, has_draft_model
        self.dtypes = tuple(dtypes)
        self._choice = ("", "")
        self._chosen: Workbench | None = None

    def offer(self, name: str) -> None:
        """Offer one more model, by its short name."""
        self.offered[name] = name

    def check(self, model: str, dtype: str) -> None:
        """Raise InputError for a model or a dtype that is not offered; "" means the server's default."""
        for kind, value, choices in (("model", model, tuple(self.offered)), ("dtype", dtype, self.dtypes)):
            if value and value not in choices:
                raise InputError(f"There is no {kind} {value[:60]!r} here; choose from {', '.join(choices) or 'none'}.")

    def describe_ready(
        self, workbench: Workbench, model: str = "", dtype: str = "", uploaded_passages: int | None = None
    ) -> str:
        """A sentence for the status line: the model of the next race, and the number of passages that it searches.

        `uploaded_passages` is the number of the visitor's own passages; None if the server's are searched.
        """
        about = workbench.target.describe()
        model, dtype = choice = self._normalize(workbench, model, dtype)
        if self._chosen is not None and self._choice == choice:
            about = self._chosen.target.describe()
        elif model or dtype:
            # The default dtype of another model is not known before it is loaded.
            about |= {"model": model or about["model"], "dtype": dtype or ("" if model else about["dtype"])}
        facts = [str(about[name]) for name in ("model", "dtype", "device") if about[name]]
        num_passages = workbench.num_passages if uploaded_passages is None else uploaded_passages
        noun = "passage" if num_passages == 1 else "passages"
        owner = "" if uploaded_passages is None else " of your own documents"
        return f"Ready: {', '.join(facts)}, {num_passages:,} {noun}{owner}"

    def choose(self, shared: Workbench, workbench: Workbench, model: str, dtype: str) -> Workbench:
        """Return `workbench` with the chosen model. Raises InputError if the model cannot be loaded.

        `shared` is the server's workbench. `workbench` is the same one, or one on a visitor's documents.
        """
        self.check(model, dtype)
        model, dtype = choice = self._normalize(shared, model, dtype)
        if choice == ("", ""):
            return workbench
        if self._chosen is None or self._choice != choice:
            # Free the previous choice first: both may not fit in memory.
            self._chosen = None
            self._chosen = shared.with_model(self.offered[model] if model else shared.choice.source, dtype or None)
            self._choice = choice
        # A visitor's documents never enter the workbench that stays loaded.
        return self._chosen if workbench is shared else workbench.with_target(self._chosen.target)

    def _normalize(self, shared: Workbench, model: str, dtype: str) -> tuple[str, str]:
        """The model and the dtype, each "" if it is the default. Without `dtype`, another model gets the server's."""
        if model in self.offered and shared.has_model(self.offered[model]):
            model = ""
        if model:
            return model, dtype or shared.choice.dtype or ""
        if dtype and dtype == shared.target.describe()["dtype"]:
            dtype = ""
        return "", dtype
