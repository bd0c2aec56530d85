"""GGUF files as models: what names one, and the folder in the user's cache to which it is converted."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from specrace.core.errors import InputError, shorten
from specrace.core.files import user_cache_folder
from specrace.model.weights.names import is_complete

SUFFIX = ".gguf"
# The file in a converted folder that says what its weights were expanded from.
ORIGIN = "gguf.json"
# Counted up when a conversion gives another result, so that older results are not used.
_VERSION = 1
# A hub id and the name of one of its files.
_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+):([\w./ -]+\.gguf)", re.IGNORECASE)
# A projector of images, which lies beside a model's GGUF file and is not a model.
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
