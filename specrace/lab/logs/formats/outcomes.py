"""Refuses rows that no model answered: failed requests, and answers from a gateway's cache.

- Helicone: response_status; cache_reference_id, all zeros for an answer of the model
  (docs.helicone.ai/features/reports/export).
- LiteLLM: status, cache_hit (docs.litellm.ai/docs/proxy/logging_spec).
- Cloudflare's AI Gateway: status_code, cached (developers.cloudflare.com/ai-gateway/observability/logging).
- Portkey: cache_status, such as HIT, SEMANTIC HIT or MISS
  (portkey.ai/docs/product/ai-gateway/cache-simple-and-semantic).
"""

from __future__ import annotations

import re

from specrace.core.errors import shorten
from specrace.lab.logs.formats.base import Row

_STATUSES = ("response_status", "status_code", "statusCode", "http_status", "status")
# The status of a failed request, as a number or in a word.
_FAILED = re.compile(r"[4-9]\d\d(?:\.0)?|error|fail(?:ed|ure)|time(?:d_?)?out|cancell?ed", re.IGNORECASE)
# What tables and logs write in place of an error.
_NO_ERROR = {"", "none", "null", "nan", "false", "0"}
_CACHED = ("cache_hit", "cacheHit", "cached")
# The page that a proxy sends if the server is busy or down. Status 404 is left out: a model may write such a page.
_ERROR_PAGE = re.compile(r"\s*<(?:!doctype\s+)?html.{0,300}?<title>\s*(?:413|429|5\d\d)\b", re.IGNORECASE | re.DOTALL)


def require_answered(row: Row) -> None:
    """Raise ValueError if a row says that its request failed, or that a cache answered it."""
    for name in _STATUSES:
        if _FAILED.fullmatch(str(row.get(name)).strip()):
            raise ValueError(f"the request failed with the status {shorten(row[name], 20)}")
    error = row.get("error")
    has_error = error is True or (isinstance(error, dict | str) and bool(error))
    if has_error and str(error).strip().lower() not in _NO_ERROR:
        raise ValueError("the request failed (its field error is not empty)")
    cache_reference = row.get("cache_reference_id")
    if (
        any(str(row.get(name)).lower() == "true" for name in _CACHED)
        or str(row.get("cache_status")).upper().endswith("HIT")
        or (isinstance(cache_reference, str) and cache_reference.strip("0-"))
    ):
        raise ValueError("the gateway answered this request from its cache; the model did not")


def require_text_of_model(text: str) -> None:
    """Raise ValueError if a text is a proxy's error page."""
    if _ERROR_PAGE.match(text):
        raise ValueError("the response is a proxy's error page, so the request failed")
