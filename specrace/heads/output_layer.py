"""The tokens that a head can draft: all of the target's, or a shortlist of the most common, with their output rows.

A shortlist (FR-Spec, arXiv 2502.14856) makes a head's output layer cheap. In a checkpoint it is `d2t`: the difference
between a token's id and its place in the shortlist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.heads.checkpoint import Checkpoint
from specrace.heads.product import Product
from specrace.model.sampling import Sampler
from specrace.model.target import Target


class OutputLayer:
    """Maps hidden rows [N, d] to logits [N, Vd] of the tokens `ids`, int64 [Vd], or of all V tokens if that is None."""

    def __init__(self, product: Product, ids: Tensor | None) -> None:
        self.product, self.ids = product, ids

    def logits(self, rows: Tensor) -> Tensor:
        """Float32 logits [N, Vd] of hidden rows [N, d]."""
        return self.product(rows).float()

    def likeliest(self, scores: Tensor, k: int) -> list[list[tuple[int, float]]]:
        """For each row of scores [N, Vd] the k best tokens and their probabilities, the best first."""
        probs, indices = scores.softmax(dim=-1).topk(min(k, scores.shape[-1]), dim=-1)
        tokens = indices if self.ids is None else self.ids[indices]
        return [
            list(zip(row, values, strict=True)) for row, values in zip(tokens.tolist(), probs.tolist(), strict=True)
        ]


class Ranking:
    """Orders a head's guesses as the target will choose.

    At temperature 0, by logit. Otherwise the target's choice is the maximum of log-probability plus noise, and
    the noise of a position is known before the choice. Adding it to the head's own logits makes both choose the same
    token with a probability of at least (1 - t) / (1 + t), where t is the total variation distance of the two
    distributions (arXiv 2408.07978). Without the noise they would agree only as often as two independent draws.
    If `coupled` is false, no noise is added.
    """

    def __init__(
        self, output_layer: OutputLayer, params: SamplingParams, vocab_size: int, *, coupled: bool = True
    ) -> None:
        self._output_layer, self._params, self._vocab_size = output_layer, params, vocab_size
        self._sampler = Sampler(params) if coupled and params.temperature else None

    def scores(self, logits: Tensor, positions: Sequence[int]) -> Tensor:
        """What to rank by, [N, Vd], from a head's logits [N, Vd] for the tokens at absolute `positions`."""
        if not self._params.temperature:
            return logits
        logits = logits / max(self._params.temperature, 1e-6)
        if self._sampler is None:
            return logits
        noise = self._sampler.noise(positions, self._vocab_size, logits.device)
        return logits + (noise if self._output_layer.ids is None else noise[:, self._output_layer.ids])


def target_rows(target: Target, label: str) -> tuple[Tensor, Tensor | None]:
    """Weight [V, d] and bias of the target's output layer. Raises InputError if the weights were freed or are split."""
    layer: Any = target.model.get_output_embeddings()
    weight, bias = layer.weight.detach(), getattr(layer, "bias", None)
    if weight.is_meta or weight.shape[0] < target.vocab_size:
        raise InputError(
            f"{label} shares the output layer of {target.name}, which this process does not hold as a whole; give a "
            "head with an lm_head of its own."
        )
    return weight, None if bias is None else bias.detach()


def read_shortlist(checkpoint: Checkpoint, target: Target) -> Tensor | None:
    """The ids [Vd] of the tokens that a head can draft, int64, ascending; None for the whole vocabulary.

    Raises InputError unless they lie in the target's vocabulary, include an end token, and are those that `t2d`, bool
    [V], marks, if the checkpoint has it.
    """
    label, vocab_size = checkpoint.label, target.vocab_size
    count = checkpoint.size("draft_vocab_size", vocab_size)
    if "d2t" not in checkpoint:
        if count != vocab_size:
            raise InputError(f"{label} drafts {count} of {vocab_size} tokens and does not say which; it lacks d2t.")
        checkpoint.ignore({"t2d"} & checkpoint.tensors.keys())
        return None
    ids = checkpoint.take("d2t", count).long() + torch.arange(count)
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size or len(ids.unique()) != count:
        raise InputError(
            f"{label} has a d2t that leaves the {vocab_size} tokens of {target.name} or names one twice; it must hold "
            "the difference of a token's id and its place."
        )
    if "t2d" in checkpoint:
        marked = checkpoint.take("t2d", vocab_size).bool().nonzero()[:, 0]
        if not torch.equal(marked, ids.sort().values):
            raise InputError(f"{label} has a t2d that marks other tokens than its d2t; export it again.")
    if target.eos_ids and not target.eos_ids & set(ids.tolist()):
        raise InputError(f"{label} cannot draft the end of a text: its d2t has no end token of {target.name}.")
    return ids
