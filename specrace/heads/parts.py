"""What the builders of all kinds of heads share: tensors of a checkpoint, moved to the target's device and dtype."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specrace.core.errors import InputError
from specrace.heads.checkpoint import Checkpoint
from specrace.heads.layer import DraftLayer, LayerSizes, Rotations
from specrace.heads.output_layer import OutputLayer, read_shortlist, target_rows
from specrace.heads.product import Product
from specrace.model.target import Target

if TYPE_CHECKING:
    from specrace.heads.compiled_layer import CompiledLayer


class HeadParts:
    """Takes the tensors of a head from its checkpoint; `width` (d) is that of the target's hidden states.

    `label` names the head in messages. A shortlist holds the only tokens that a head can draft.
    """

    def __init__(self, checkpoint: Checkpoint, target: Target) -> None:
        self.checkpoint, self.target, self.label = checkpoint, target, checkpoint.label
        self.width = target.config.hidden_size

    def layer_sizes(self) -> LayerSizes:
        """The layer's sizes. Raises InputError for a head of another width or vocabulary."""
        sizes = LayerSizes(self.checkpoint, self.target.config)
        self.check_sizes(sizes.width)
        return sizes

    def check_sizes(self, width: int) -> None:
        """Raises InputError unless the target has hidden states of this width, and the checkpoint's vocabulary."""
        target = self.target
        if width != self.width:
            raise InputError(
                f"{self.label} was trained for hidden states of width {width}, and those of {target.name} have "
                f"{self.width}; give a head that was trained for this target."
            )
        if (vocab_size := self.checkpoint.size("vocab_size", target.vocab_size)) != target.vocab_size:
            raise InputError(
                f"{self.label} was trained for a vocabulary of {vocab_size} tokens, and {target.name} has "
                f"{target.vocab_size}; give a head that was trained for this target."
            )

    def compiled(self, layer: DraftLayer, output_layer: OutputLayer, **norms: Tensor) -> CompiledLayer | None:
        """A head's only layer in the compiled decoder; None if the target does not run there, or the layer cannot.

        `norms`: see `CompiledLayer`.
        """
        # The forward that the target runs without its Python code, if one was captured.
        replay = self.target.replay
        # Of the captured forwards, only the compiled decoder has threads of its own.
        if replay is None or not replay.own_threads:
            return None
        # Imported only here, because the import takes half a second.
        from specrace.heads.compiled_layer import CompiledLayer
        from specrace.model.forward.compiled.forward import CompiledForward

        assert isinstance(replay, CompiledForward)
        try:
            return CompiledLayer(layer, output_layer, replay.vector_width, **norms)
        except ValueError:
            return None

    def rotations(self, sizes: LayerSizes) -> Rotations:
        """The rotary positions of the head's layers."""
        return Rotations(self.checkpoint, self.target.config, sizes)

    def own_embeddings(self, name: str) -> Tensor | None:
        """The head's own embeddings [V, d]; None if it has none."""
        return self.placed(name, self.target.vocab_size, self.width) if name in self.checkpoint else None

    def output_layer(self, name: str) -> OutputLayer:
        """The output layer: the head's own tensor, or the target's rows of the tokens that the head can draft."""
        if name not in self.checkpoint:
            return self._target_output_layer
        count = self.target.vocab_size if self.shortlist is None else len(self.shortlist)
        bias_name = f"{name.removesuffix('weight')}bias"
        bias = self.checkpoint.take(bias_name, count) if bias_name in self.checkpoint else None
        return OutputLayer(self.product(self.checkpoint.take(name, count, self.width), bias), self.shortlist)

    @cached_property
    def _target_output_layer(self) -> OutputLayer:
        """The target's output layer, or its rows of the shortlist in the dtype of the head's weights."""
        ids, target = self.shortlist, self.target
        weight, bias = target_rows(target, self.label)
        if ids is None:
            # All rows are used as they are, so they are not copied: there may be gigabytes of them.
            return OutputLayer(Product(weight, bias, target.device, target.dtype, may_copy=False), None)
        rows = weight[ids].to(self.checkpoint.dtype)
        return OutputLayer(self.product(rows, None if bias is None else bias[ids]), ids)

    @cached_property
    def shortlist(self) -> Tensor | None:
        """The ids [Vd] of the tokens that the head can draft; None for all."""
        ids = read_shortlist(self.checkpoint, self.target)
        return None if ids is None else ids.to(self.target.device)

    def product(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """A linear layer on the target's device."""
        return Product(weight, bias, self.target.device, self.target.dtype)

    def placed(self, name: str, *shape: int) -> Tensor:
        """The tensor `name` on the target's device, in its dtype. Raises InputError like `Checkpoint.take`."""
        placed: Tensor = self.checkpoint.take(name, *shape).to(self.target.device, self.target.dtype)
        # A tensor on torch's device "meta" has a shape and no numbers.
        return placed.contiguous() if placed.device != torch.device("meta") else placed
