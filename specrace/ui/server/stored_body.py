"""Stores a request's body in a file while it arrives, because several large bodies might not fit in memory."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

# Characters of a stored file's name.
MAX_NAME = 80
NO_ROOM = "The server has no room for files; try again later."


@asynccontextmanager
async def stored_body(request: Request, name: str) -> AsyncIterator[Path]:
    """A file with a request's body, which exists inside the `with` block. Any `name` is safe, even a visitor's.

    Raises HTTPException if the body is too large, does not arrive, or cannot be stored.
    """
    with tempfile.TemporaryDirectory(prefix="body-", dir=visitors_folder()) as folder:
        path = Path(folder, safe_name(name))
        try:
            with path.open("wb") as file:
                async for chunk in request.stream():
                    file.write(chunk)
        except ClientDisconnect:
            raise HTTPException(400, "The rest of the request did not arrive.") from None
        except OSError as error:
            raise HTTPException(507, NO_ROOM) from error
        yield path


def visitors_folder() -> str | None:
    """The server's folder for visitors' files (`server/folder.py`); None if there is none."""
    return os.environ.get("GRADIO_TEMP_DIR")


def safe_name(name: str) -> str:
    """A safe name for a file on the disk: the end of `name`, with special characters replaced."""
    return re.sub(r"[^\w.-]", "_", name)[-MAX_NAME:].lstrip(".") or "log"
