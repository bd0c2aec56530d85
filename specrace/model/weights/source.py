"""A model that the user asked for: where its files are, and how to load it. Its name is looked up once, here.

A name may stand for a GGUF file, which is converted once to a folder in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from specrace.core.errors import InputError, shorten
from specrace.core.files import user_cache_folder
from specrace.model.weights.names import NAMES, NamedModel, hub_snapshot, is_complete

# Values of `ModelChoice.adapter` that are not folders.
AUTO, NONE = "auto", "none"
SUFFIX = ".gguf"
# The file in a converted folder that says what its weights were expanded from.
ORIGIN = "gguf.json"
# Increased when a conversion gives another result, so that older results are not used.
_VERSION = 1
# A hub id and the name of one of its files.
_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+):([\w./ -]+\.gguf)", re.IGNORECASE)
# How the names of image projectors begin: GGUF files beside a model's that are not models themselves.
_PROJECTOR = "mmproj"


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file: at `path`, or else `file` of the hub model `hub`."""

    path: Path | None = None
    hub: str = ""
    file: str = ""

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return Path(self.file if self.path is None else self.path.name).stem

    @property
    def folder(self) -> Path | None:
        """The folder for the converted model; None without a home folder.

        A file that is replaced gets another folder. Its content is not hashed, because that would delay every start.
        """
        cache = user_cache_folder()
        if cache is None:
            return None
        if self.path is None:
            content = f"{self.hub}:{self.file}"
        else:
            status = self.path.stat()
            content = f"{self.path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
        key = hashlib.sha256(f"{_VERSION}\n{content}".encode(errors="replace")).hexdigest()[:12]
        return cache / "models" / f"{shorten(self.stem, 60)}-{key}"

    def find(self) -> Path | None:
        """The folder of the converted model; None if the file must be converted first."""
        folder = self.folder
        return folder if is_complete(folder) else None


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

    "auto" may place another model on another device, and a dtype of None is the device's default. `more_drafts`:
    further draft models, for lanes that draft with several. `heads`: trained heads, each "[LANE=]FOLDER_OR_ID", which
    the workbench loads.
    """

    source: ModelSource
    device: str = "cpu"
    dtype: str | None = None
    draft: ModelSource | None = None
    adapter: str | Path = AUTO
    lean: bool = False
    heads: tuple[str, ...] = ()
    more_drafts: tuple[ModelSource, ...] = ()

    @property
    def drafts(self) -> tuple[ModelSource, ...]:
        """All draft models, the first one first."""
        return () if self.draft is None else (self.draft, *self.more_drafts)

    def refresh(self) -> ModelChoice:
        """The current choice: missing models are looked up again, because they may have been fetched."""
        more = tuple(draft.refresh() for draft in self.more_drafts)
        draft = None if self.draft is None else self.draft.refresh()
        return replace(self, source=self.source.refresh(), draft=draft, more_drafts=more)

    def with_model(self, source: ModelSource, dtype: str | None = None) -> ModelChoice:
        """The choice of another model, or of the same model in another dtype; None keeps the dtype.

        Another model gets neither draft models, nor heads, nor an adapter from a folder: they belong to this model.
        """
        changed = replace(self, source=source, dtype=dtype or self.dtype)
        if source.is_same(self.source):
            return changed
        return replace(changed, draft=None, more_drafts=(), heads=(), adapter=NONE if self.adapter == NONE else AUTO)


class ModelSettings(TypedDict, total=False):
    """The keyword arguments that `choose_model` takes beside the model."""

    device: str
    dtype: str | None
    draft_model: str | Path | ModelSource | Sequence[str | Path | ModelSource] | None
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


def choose_model(model: str | Path | ModelSource, **settings: Unpack[ModelSettings]) -> ModelChoice:
    """The choice of a model by name or source."""
    values: dict[str, Any] = dict(settings)
    if "draft_model" in values:
        drafts = values.pop("draft_model") or ()
        names = (drafts,) if isinstance(drafts, (str, Path, ModelSource)) else drafts
        sources = tuple(map(find_source, names))
        values["draft"] = sources[0] if sources else None
        values["more_drafts"] = sources[1:]
    return ModelChoice(find_source(model), **values)


def find_gguf(name: str | Path) -> GgufFile | None:
    """The GGUF file that a name stands for: a file, a folder with one, or OWNER/MODEL:FILE.gguf; None for other names.

    Raises InputError for a folder with several.
    """
    text, path = str(name), Path(name)
    try:
        if path.is_file():
            return GgufFile(path) if path.suffix.lower() == SUFFIX else None
        files = _files_in(path) if path.is_dir() and not is_complete(path) else []
    except (OSError, ValueError):  # a name that is too long, or with a NUL
        return None
    if len(files) > 1:
        listed = shorten(", ".join(file.name for file in files))
        raise InputError(f"{shorten(path)} has several GGUF files ({listed}); give one of them.")
    if files:
        return GgufFile(files[0])
    match = _HUB_FILE.fullmatch(text)
    return GgufFile(hub=match[1], file=match[2]) if match else None


def _files_in(folder: Path) -> list[Path]:
    files = (file for file in folder.iterdir() if file.suffix.lower() == SUFFIX and file.is_file())
    return sorted(file for file in files if not file.name.lower().startswith(_PROJECTOR))


def converted_title(folder: Path) -> str:
    """The name of a model whose weights came from a GGUF file, with its quantization; "" for another folder."""
    try:
        origin = json.loads((folder / ORIGIN).read_text(encoding="utf-8"))
        return f"{origin['name']}, weights expanded from {origin['quantization']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""
