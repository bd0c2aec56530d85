"""A model as it was asked for: where its files are, and how it is to be loaded. A name is looked up once, here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from specrace.model.weights.names import NAMES

# Values of `ModelChoice.adapter` that are no folders.
AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class ModelSource:
    """Where a model's files are: `location` is a folder or a hub id.

    `is_missing` is True for a short name whose model must be fetched first; `location` is then its hub id.
    """

    name: str
    location: str | Path
    is_missing: bool = False

    def is_same(self, other: ModelSource) -> bool:
        """Whether both are one model; a folder may be written in several ways, and a model may have been fetched."""
        return self.name == other.name or Path(self.location).resolve() == Path(other.location).resolve()


@dataclass(frozen=True)
class ModelChoice:
    """A model as asked for, not yet adapted to this machine; see `load_target` for the meaning of the settings.

    "auto" may place another model on another device, and a dtype of None is the device's default.
    """

    source: ModelSource
    device: str = "cpu"
    dtype: str | None = None
    draft: ModelSource | None = None
    adapter: str | Path = AUTO
    lean: bool = False

    def with_model(self, source: ModelSource, dtype: str | None = None) -> ModelChoice:
        """Another model, or this one in another dtype; a dtype of None keeps it.

        The draft model, and an adapter in a folder, belong to this model only.
        """
        changed = replace(self, source=source, dtype=dtype or self.dtype)
        if source.is_same(self.source):
            return changed
        return replace(changed, draft=None, adapter=NONE if self.adapter == NONE else AUTO)


class ModelSettings(TypedDict, total=False):
    """The keyword arguments that `choose_model` takes beside the model."""

    device: str
    dtype: str | None
    draft_model: str | Path | ModelSource | None
    adapter: str | Path
    lean: bool


def find_source(name: str | Path | ModelSource) -> ModelSource:
    """Look up a short name, a folder or a hub id. A folder in the working directory precedes a short name."""
    if isinstance(name, ModelSource):
        return name
    model = NAMES.get(str(name))
    if model is None or Path(name).is_dir():
        return ModelSource(str(name), name)
    location = model.find()
    return ModelSource(model.name, location or model.source, is_missing=location is None)


def choose_model(model: str | Path | ModelSource | ModelChoice, **settings: Unpack[ModelSettings]) -> ModelChoice:
    """The choice of a model by name, or a choice with other settings."""
    values: dict[str, Any] = dict(settings)
    if "draft_model" in values:
        draft = values.pop("draft_model")
        values["draft"] = None if draft is None else find_source(draft)
    return replace(model, **values) if isinstance(model, ModelChoice) else ModelChoice(find_source(model), **values)
