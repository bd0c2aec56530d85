"""Bounds on what a visitor may do and send. Several folders of `ui` check or state them."""

from __future__ import annotations

from dataclasses import dataclass

from specrace.retrieval.limits import UPLOADS

# A guess.
MAX_UPLOAD_FILES = 20
# Maximum numbers of bytes: of all documents of a visit together, and of a log.
MAX_UPLOAD_BYTES = UPLOADS.total_bytes
MAX_LOG_BYTES = 20_000_000


@dataclass(frozen=True)
class VisitorLimits:
    """The bounds that the operator sets for visitors.

    `queue`: waiting races of all visitors. `race_tokens`: new tokens of a lane. `races_at_once`: unfinished races of
    programs at one address. `uploads`: whether visitors may upload documents and logs, and open recordings. The default
    numbers are guesses.
    """

    queue: int = 20
    race_tokens: int = 512
    uploads_per_hour: int = 60
    races_per_minute: int = 12
    races_at_once: int = 4
    uploads: bool = True
