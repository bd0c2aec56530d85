"""Why a chat template cannot be rendered, in words; for the templates of races and of logs."""

from __future__ import annotations

import re

from specrace.core.errors import shorten

# Jinja's tags that read another template's file. The renderer has no other files, and its error does not name the tag.
_OTHER_FILE = re.compile(r"\{%[-+]?\s*(include|import|extends|from)\b")
_MAX_CHARACTERS = 80


def describe_failure(template: str, error: Exception) -> str:
    """The reason why rendering `template` raised `error`, in one short line that names the template's construct."""
    if "no loader" in str(error) and (tag := _OTHER_FILE.search(template)):
        return f"{{% {tag[1]} %}} reads another file, and a chat template is a single one"
    return shorten(" ".join(str(error).split()) or type(error).__name__, _MAX_CHARACTERS)
