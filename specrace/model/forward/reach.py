"""How far back each kind of a model's layers sees: everything, a window, or a chunk.

Windows and chunks are counted in positions. A node's position is base + depth, so siblings see equally far, and a tree
sees exactly what its paths would see as plain text. The cache keeps every column; only the masks differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"

# The names under which a config gives the length of windows and of chunks.
REACH_SETTINGS = ("sliding_window", "attention_chunk_size")


@dataclass(frozen=True)
class Reach:
    """How far back a row sees: `window` positions, itself included, or back to the start of its chunk; 0: no limit."""

    window: int = 0
    chunk: int = 0

    def hides(self, rows: Tensor, columns: Tensor) -> Tensor:
        """A boolean mask: True where a row may not see a column, because the column is too far back.

        A window does not mark later columns, which other masks hide. Only for a limited reach. `rows` and `columns` are
        positions that broadcast.
        """
        if self.window:
            return columns <= rows - self.window
        return rows.div(self.chunk, rounding_mode="floor") != columns.div(self.chunk, rounding_mode="floor")

    @property
    def is_limited(self) -> bool:
        """Whether a row may not see some of the positions before it."""
        return bool(self.window or self.chunk)


EVERYTHING = Reach()
# The name under which one reach serves all layers.
ALL_LAYERS = ""


def layer_reaches(config: Any) -> Mapping[str, Reach]:
    """The reach of each kind of layer of a text model, keyed as the model's forward expects its masks.

    If the config names no kind with a limited reach, there is one reach, under ALL_LAYERS, and the forward takes one
    mask. The rules are those by which transformers makes its own masks
    (`masking_utils.create_masks_for_generate`, 5.23).
    """
    window, chunk = (int(getattr(config, name, None) or 0) for name in REACH_SETTINGS)
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds & {SLIDING, CHUNKED}:
        if kinds:
            return {ALL_LAYERS: EVERYTHING}
        return {ALL_LAYERS: Reach(window=window) if window else Reach(chunk=chunk)}
    reaches = {FULL: EVERYTHING, SLIDING: Reach(window=window), CHUNKED: Reach(chunk=chunk)}
    return {kind: reaches.get(kind, EVERYTHING) for kind in sorted(kinds)}
