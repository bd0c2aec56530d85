"""The user's cache folder, and files in it that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def user_cache_folder() -> Path | None:
    """$XDG_CACHE_HOME (which counts only if absolute) or ~/.cache, and `specrace` below it; None without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path.home() / ".cache") / "specrace"
    except RuntimeError:
        return None


def write_whole(file: Path, content: bytes) -> None:
    """Write beside the file and rename, so that no reader ever sees half of it. Raises OSError and leaves nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".writing-", suffix=file.suffix)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink()
        raise
