"""How many of a head's guesses are the target's tokens, by depth, on held-out answers.

A chain of drafts begins after a token; its draft at depth 1 guesses the next token, that at depth 2 the one after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch


@dataclass(frozen=True)
class Acceptance:
    """`by_depth`, for depth 1, 2, ...: of the draft tokens whose chain was right so far, the share that was right, too.

    `num_tokens`: how many tokens of answers began a chain.
    """

    by_depth: tuple[float, ...]
    num_tokens: int

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens of a step that drafts one chain of full depth: the accepted drafts and the bonus token."""
        total, reached = 1.0, 1.0
        for share in self.by_depth:
            reached *= share
            total += reached
        return total


@torch.inference_mode()
def measure(
    head: Any, batches: Iterable[Batch], embeddings: Tensor, rows: Tensor, shortlist: Tensor, depths: int
) -> Acceptance:
    """The acceptance of a head's likeliest chain, started before every token of the answers; at most `depths` long.

    `embeddings` [V, d] and `rows` [Vd, d], of its output matrix, are the target's; `shortlist` [Vd] has the ids that
    the head can guess.
    """
    reached, accepted = torch.zeros(depths), torch.zeros(depths)
    num_guessed = depths
    for batch in batches:
        so_far: Tensor | None = None
        outputs = head.guesses(batch, embeddings[batch.ids], depths)
        # Medusa and Hydra guess no deeper than they have heads, a block head no more than its block.
        num_guessed = len(outputs)
        for depth, output in enumerate(outputs, 1):
            guesses = shortlist[head.logits(output, rows).argmax(-1)]
            is_right = (guesses == batch.guessed(depth)) & batch.is_guessed(depth)
            # Row r of each depth belongs to the chain that begins at token r of the answer.
            is_open = batch.is_guessed(depth) if so_far is None else so_far[:, : is_right.shape[1]]
            is_open = is_open & batch.is_guessed(depth)
            so_far = is_open & is_right
            reached[depth - 1] += is_open.sum()
            accepted[depth - 1] += so_far.sum()
    return Acceptance(tuple((accepted / reached.clamp_min(1))[:num_guessed].tolist()), int(reached[0]))
