"""Which titles the training never sees."""

from __future__ import annotations

import hashlib

from specrace.tiny.quoting import Source

HELD_OUT_PERCENT = 5


def split_titles(sources: list[Source]) -> tuple[list[Source], list[Source]]:
    """(for training, held out): whole titles, by a hash of the part before a colon, so it never changes."""
    learned: list[Source] = []
    held_out: list[Source] = []
    for source in sources:
        digest = hashlib.sha256(source.title.split(":")[0].encode()).digest()
        (held_out if digest[0] * 100 < HELD_OUT_PERCENT * 256 else learned).append(source)
    return learned, held_out
