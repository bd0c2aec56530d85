"""Counts the lines of a log that cannot be used, by reason; or refuses the log at the first of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.files.sources import Source

# How many bad lines are described in sentences.
MAX_SENTENCES = 5
# How many reasons are counted separately.
MAX_REASONS = 50
OTHER_REASONS = "other reasons"


class BadLines:
    """The bad lines so far: `counts` by reason, `sentences` about the first few. Without `skip` the first raises."""

    def __init__(self, *, skip: bool) -> None:
        self.skip = skip
        self.counts: Counter[str] = Counter()
        self.sentences: list[str] = []

    def add(self, source: Source | Path, number: int, reason: str) -> None:
        """Count a line. Raises InputError, with file and line, unless bad lines are skipped."""
        sentence = f"{shorten(source)}, line {number}: {reason}"
        if not self.skip:
            raise InputError(f"{sentence} (--skip-bad leaves such lines out).")
        self.count(reason, f"{sentence}.")

    def count(self, reason: str, sentence: str) -> None:
        """Count a line, or a whole file, under its reason."""
        is_separate = reason in self.counts or len(self.counts) < MAX_REASONS
        self.counts[reason if is_separate else OTHER_REASONS] += 1
        if len(self.sentences) < MAX_SENTENCES:
            self.sentences.append(sentence)
