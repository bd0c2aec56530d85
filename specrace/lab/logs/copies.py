"""Finds answers that a later file of a log repeats, such as one export as CSV and as JSON."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from specrace.lab.logs.formats.base import Exchange


class Copies:
    """Counts the answers of each file by their id, prompt and output.

    A file may hold equal requests, which all count. So an answer is a copy only if one earlier file has it as many
    times as this file up to here.
    """

    def __init__(self) -> None:
        # Digest of an answer -> how many times one of the earlier files has it, and how many times this one.
        self._earlier = Counter[bytes]()
        self._here = Counter[bytes]()

    def begin_file(self) -> None:
        """Note that the answers that follow are those of another file."""
        # For each answer, the largest count in any one file.
        self._earlier |= self._here
        self._here = Counter()

    def repeats(self, exchange: Exchange) -> bool:
        """Count an answer, and return whether it is a copy."""
        parts = (exchange.id, exchange.category, exchange.prompt, exchange.output, exchange.draft_counts)
        digest = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).digest()
        self._here[digest] += 1
        return self._here[digest] <= self._earlier[digest]
