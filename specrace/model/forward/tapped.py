"""Taps: hidden states that leave a forward together with its logits, for the trained heads that draft from them.

Level i is the state that enters layer i: 0 are the embeddings, and L, the number of layers, is the state after the
final norm, from which the logits are computed. Features are the chosen levels of a row, one after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from specrace.core.errors import InputError
from specrace.model.forward.tree_inputs import TreeTensors

Levels = tuple[int, ...]
# A captured forward that also returns features: (tree, data) -> (logits [N, V], features [N, levels * d]).
TappedForward = Callable[[TreeTensors, Tensor], tuple[Tensor, Tensor]]


@runtime_checkable
class FeatureReader(Protocol):
    """Reads the features of a lane's tokens: the session of a trained head."""

    @property
    def levels(self) -> Levels:
        """The levels of the features."""

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        """Take the features [n, levels * d] of the `n` tokens that a step has committed, in order."""


def check_levels(levels: Sequence[int], num_layers: int, label: str) -> None:
    """Raises InputError unless a model of `num_layers` layers has all `levels` that the head called `label` reads."""
    wrong = [level for level in levels if not 0 <= level <= num_layers]
    if wrong or not levels:
        raise InputError(
            f"{label} reads the hidden states of level {wrong[0] if wrong else 'none'}, and the target has the levels "
            f"0 to {num_layers}; give a head that was trained for this target."
        )


def features_of(output: Any, levels: Sequence[int], device: torch.device) -> Tensor:
    """Features [N, levels * d] of a transformers output with hidden states, on `device`."""
    states = output.hidden_states
    return torch.cat([states[level][0].to(device) for level in levels], dim=-1)


class TappedDecoder(nn.Module):
    """The layers of a fused decoder (`scripted`), to be scripted once more with features as a second output."""

    def __init__(self, decoder: Any, levels: Sequence[int]) -> None:
        """Share all weights of `decoder`."""
        super().__init__()
        self.layers, self.norm, self.head = decoder.layers, decoder.norm, decoder.head
        self.groups: int = decoder.groups
        self.lowest: float = decoder.lowest
        self.levels: list[int] = list(levels)

    def forward(self, rows: Tensor, cos: Tensor, sin: Tensor, masked: Tensor, data: Tensor) -> tuple[Tensor, Tensor]:
        mask = tree_mask(masked, data, self.lowest, self.groups)
        states = self._run(rows, cos, sin, mask, data, rows.size(0), False)
        logits: Tensor = self.head(states[-1])
        return logits, torch.cat([states[level] for level in self.levels], -1)

    @torch.jit.export
    def read(self, rows: Tensor, cos: Tensor, sin: Tensor, data: Tensor) -> Tensor:
        """Read a prompt from position 0 on; returns its features."""
        states = self._run(rows, cos, sin, None, data, 0, True)
        return torch.cat([states[level] for level in self.levels], -1)

    def _run(
        self, rows: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, data: Tensor, count: int, is_prompt: bool
    ) -> list[Tensor]:
        """Run the layers; returns the rows at every level. They write the last `count` columns, or all of a prompt."""
        written = data if is_prompt else data.narrow(4, data.size(4) - count, count)
        new = written.select(2, 0).unbind(0)
        keys, values = data.select(1, 0).unbind(0), data.select(1, 1).unbind(0)
        states = [rows]
        for number, layer in enumerate(self.layers):
            rows = layer(rows, cos, sin, mask, keys[number], values[number], new[number], is_prompt)
            states.append(rows)
        states[-1] = self.norm(rows)
        return states


def script_tapped(decoder: Any, levels: Sequence[int]) -> Any:
    """A `TappedDecoder` as TorchScript."""
    with warnings.catch_warnings():
        # TorchScript is deprecated; without it the untapped forward could not be scripted either.
        warnings.simplefilter("ignore")
        return torch.jit.script(TappedDecoder(decoder, levels).eval())


def tree_mask(masked: Tensor, data: Tensor, lowest: float, groups: int) -> Tensor | None:
    """The additive mask [groups * N, T] of a tree's rows over the cache's columns; None for a single row.

    All committed columns are visible; the tree's own columns come last.
    """
    mask: Tensor | None = None
    if masked.size(0) > 1:
        mask = nn.functional.pad(masked.to(data.dtype) * lowest, [data.size(4) - masked.size(0), 0])
        mask = mask.repeat(groups, 1)
    return mask
