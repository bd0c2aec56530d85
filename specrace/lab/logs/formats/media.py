"""Refuses rows beside whose text stand images, videos, sound or documents that the model also read."""

from __future__ import annotations

import re
from typing import Any

from specrace.lab.logs.formats.base import Row

# Names of fields with images, videos or sound. An `image_name` is not among them: logs of coding agents have it for the
# container's image.
_MEDIA = re.compile(r"(?:image|video|audio)s?(?:_?(?:path|file|url|data|bytes|base64)s?)?", re.IGNORECASE)
# A container's image, with its tag: vllm/vllm-openai:latest.
_CONTAINER = re.compile(r"[\w.-]+(?::\d+)?(?:/[\w.-]+)*(?::[\w.-]+|@sha256:\w+)")
# Fields with files of any kind, and the names and types of those that are not plain text.
_FILES = ("files", "attachments")
_NOT_TEXT = re.compile(
    r"(?:image|video|audio)/.*|application/pdf|"
    r".*\.(?:png|jpe?g|gif|webp|bmp|tiff?|pdf|docx?|pptx?|xlsx?|mp[34]|wav|flac|webm|mov)",
    re.IGNORECASE | re.DOTALL,
)


def require_text_only(row: Row, beside: str) -> None:
    """Raise ValueError if a row has media or documents. `beside`: what they stand beside, "the prompt", ..."""
    for name, value in row.items():
        if (_MEDIA.fullmatch(name) and _is_medium(value)) or (name.lower() in _FILES and _has_document(value)):
            raise ValueError(f"{name} stands beside {beside}; only text can be scored")


def _is_medium(value: Any) -> bool:
    """Whether the value of a field with a medium's name may be one: no empty value, and no settings for an answer."""
    if isinstance(value, str):
        return bool(value.strip()) and _CONTAINER.fullmatch(value) is None
    if isinstance(value, list):
        return any(map(_is_medium, value))
    if isinstance(value, dict):
        return "voice" not in value and any(value.values())
    return bool(value)


def _has_document(value: Any) -> bool:
    """Whether a list of files has one that is no plain text, by its name or type."""
    files = value if isinstance(value, list) else []
    texts = [text for file in files for text in (file.values() if isinstance(file, dict) else [file])]
    # A longer text is neither a name nor a type.
    return any(isinstance(text, str) and len(text) < 1000 and _NOT_TEXT.fullmatch(text) for text in texts)
