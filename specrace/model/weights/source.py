"""A model that the user asked for: where its files are, and how to load it. Its name is looked up once, here."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from specrace.core.errors import InputError, shorten
from specrace.model.weights.gguf_names import GgufFile, converted_title, find_gguf
from specrace.model.weights.names import NAMES, NamedModel, hub_snapshot, is_complete

# Values of `ModelChoice.adapter` that are not folders.
AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class ModelSource:
    """What the name of a model stands for on this machine: `location` is a folder or a hub id.

    `entry` is the row of a short name in the table of models; `gguf` is the GGUF file that the name means. `is_missing`
    is True for a short name whose model must be fetched first, with its hub id as `location`, and for a GGUF file that
    must be converted first.
    """

    name: str
    location: str | Path
    entry: NamedModel | None = None
    is_missing: bool = False
    gguf: GgufFile | None = None

    @property
    def is_folder(self) -> bool:
        """Whether `location` is a folder, or a path at which a folder is missing; otherwise it is a hub id."""
        path, text = Path(self.location), str(self.location)
        exists = os.path.exists(text)  # noqa: PTH110 (Path.exists raises for a name that is too long)
        return exists or path.is_absolute() or text.startswith(".") or text.count("/") > 1

    @property
    def folder(self) -> Path | None:
        """The folder of the model's files, perhaps in the hub's cache; None if the hub must be asked for them."""
        if self.is_folder:
            return Path(self.location)
        snapshot = hub_snapshot(str(self.location))
        return snapshot if is_complete(snapshot) else None

    @property
    def title(self) -> str:
        """The model's name in messages: its folder's name, its hub id, or a GGUF file's name and quantization."""
        if not self.is_folder:
            return shorten(self.location)
        return converted_title(Path(self.location)) or Path(self.location).name

    def is_same(self, other: ModelSource) -> bool:
        """Whether both are one model; a folder may be written in several ways, and a model may have been fetched."""
        return self.name == other.name or Path(self.location).resolve() == Path(other.location).resolve()

    def refresh(self) -> ModelSource:
        """The current source: a missing model is looked up again, because it may have been fetched."""
        if self.entry is not None:
            return named_source(self.name) if self.is_missing else self
        return self if self.gguf is None else find_source(self.name)


@dataclass(frozen=True)
class ModelChoice:
    """The user's choice of a model and its settings, before "auto" is decided; `load_target` explains the settings.

    "auto" may place another model on another device, and a dtype of None is the device's default. `heads`: trained
    heads, each "[LANE=]FOLDER_OR_ID", which the workbench loads.
    """

    source: ModelSource
    device: str = "cpu"
    dtype: str | None = None
    draft: ModelSource | None = None
    adapter: str | Path = AUTO
    lean: bool = False
    heads: tuple[str, ...] = ()

    def refresh(self) -> ModelChoice:
        """The current choice: missing models are looked up again, because they may have been fetched."""
        return replace(self, source=self.source.refresh(), draft=self.draft and self.draft.refresh())

    def with_model(self, source: ModelSource, dtype: str | None = None) -> ModelChoice:
        """The choice of another model, or of the same model in another dtype; None keeps the dtype.

        Another model gets neither the draft model, nor heads, nor an adapter from a folder: they belong to this model.
        """
        changed = replace(self, source=source, dtype=dtype or self.dtype)
        if source.is_same(self.source):
            return changed
        return replace(changed, draft=None, heads=(), adapter=NONE if self.adapter == NONE else AUTO)


class ModelSettings(TypedDict, total=False):
    """The keyword arguments that `choose_model` takes beside the model."""

    device: str
    dtype: str | None
    draft_model: str | Path | ModelSource | None
    adapter: str | Path
    lean: bool
    heads: tuple[str, ...]


def find_source(name: str | Path | ModelSource) -> ModelSource:
    """Look up a short name, a folder, a hub id or a GGUF file (see `find_gguf`).

    A folder in the working directory precedes a short name. Raises InputError for a folder with several GGUF files.
    """
    if isinstance(name, ModelSource):
        return name
    if str(name) in NAMES and not Path(name).is_dir():
        return named_source(str(name))
    gguf = find_gguf(name)
    if gguf is not None:
        folder = gguf.find()
        return ModelSource(str(name), folder or name, is_missing=folder is None, gguf=gguf)
    return ModelSource(str(name), name)


def named_source(name: str) -> ModelSource:
    """Look up a short name, even if there is a folder of that name. Raises InputError for an unknown name."""
    entry = NAMES.get(name)
    if entry is None:
        raise InputError(f"There is no model named {shorten(repr(name))}; choose from {', '.join(NAMES)}.")
    location = entry.find()
    return ModelSource(name, location or entry.source, entry, is_missing=location is None)


def choose_model(model: str | Path | ModelSource | ModelChoice, **settings: Unpack[ModelSettings]) -> ModelChoice:
    """The choice of a model by name or source, or a choice with other settings."""
    values: dict[str, Any] = dict(settings)
    if "draft_model" in values:
        draft = values.pop("draft_model")
        values["draft"] = None if draft is None else find_source(draft)
    return replace(model, **values) if isinstance(model, ModelChoice) else ModelChoice(find_source(model), **values)
