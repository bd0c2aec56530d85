"""Bounds on what a visitor may send. Several folders of `ui` check or state them."""

from __future__ import annotations

from specrace.retrieval.limits import UPLOADS

MAX_UPLOAD_FILES = 20
# In bytes: all files of a visitor together, and a log.
MAX_UPLOAD_BYTES = UPLOADS.total_bytes
MAX_LOG_BYTES = 20_000_000
