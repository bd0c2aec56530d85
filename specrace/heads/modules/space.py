"""Masks (SPACE, arXiv 2402.11809; PaSS, arXiv 2311.13581) as a module to train: the target guesses at them.

A mask is a learned embedding that stands for a token not known yet. The target reads a conversation as it is, and after
each of its tokens, as a branch, a chain of masks, which sees the text up to that token. One forward over all masks
after the conversation's keys and values gives every guess.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.config import HeadConfig


class Space(nn.Module):
    """The embeddings [k, d] of k masks; `read_with` gives it the target, which is no part of its weights."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.mask_embeddings = nn.Embedding(config.num_heads, config.hidden_size)
        self._decoder: list[Any] = []

    def read_with(self, model: Any) -> None:
        """Guess with this model's layers, which are not trained."""
        # In a list, so that torch does not count the layers' weights among this module's parameters.
        self._decoder = [model.base_model]
        model.requires_grad_(requires_grad=False)

    def _read(self, decoder: Any, batch: Batch) -> Any:
        """The output and the cache of the layers for all tokens but the last two."""
        with torch.no_grad():
            return _call(decoder, batch)

    @torch.no_grad()
    def start(self, embeddings: Tensor, tokens: Tensor) -> None:
        """Begin every mask as the mean embedding of these `tokens`; `embeddings` [V, d] are the target's."""
        self.mask_embeddings.weight.copy_(embeddings[tokens].mean(0).expand_as(self.mask_embeddings.weight))

    def guesses(self, batch: Batch, embeddings: Tensor, depths: int) -> list[Tensor]:
        """For each depth the outputs [B, A - depth + 1, d] that guess `batch.guessed(depth)`, for at most k depths."""
        del embeddings
        (decoder,) = self._decoder
        count = min(depths, len(self.mask_embeddings.weight))
        # A mask guesses at least two places ahead, so the last two tokens of a text have none.
        first, ids = batch.width - 2, batch.ids[:, :-2]
        places = ids.shape[1] - first
        cache = self._read(decoder, batch).past_key_values
        mask_positions = batch.positions[:, first:-2, None] + 1 + torch.arange(count, device=ids.device)
        dtype = decoder.dtype
        masks = self.mask_embeddings.weight[:count].to(dtype).expand(len(ids), places, count, -1)
        outputs = decoder(
            inputs_embeds=masks.flatten(1, 2),
            attention_mask=_mask(batch.is_token[:, :-2], first, count, dtype),
            position_ids=mask_positions.flatten(1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        by_depth = outputs.view(len(ids), places, count, -1).unbind(2)
        return [output[:, : places - depth] for depth, output in enumerate(by_depth)]

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Logits [..., Vd] of outputs [..., d]; `rows` [Vd, d]: the target's output matrix."""
        return functional.linear(outputs, rows.to(outputs.dtype))


class SpaceTarget(Space):
    """Masks, and the target's layers, which are trained with them as in SPACE.

    The tokens' embeddings and the output layer stay as they are; SPACE trains them too.
    """

    def read_with(self, model: Any) -> None:
        """Train a float32 copy of this model."""
        super().read_with(model)
        self.model = deepcopy(model).float()
        for parameter in self.layer_parameters():
            parameter.requires_grad = True
        self._decoder = [self.model.base_model]
        # The layers' outputs [B, T - 2, d] for the tokens of the last batch, from which the target itself chooses.
        self.token_outputs = torch.zeros(0)

    def layer_parameters(self) -> list[nn.Parameter]:
        """The weights that are trained with the masks: all but those of the embeddings and of the output layer."""
        embeddings = self.model.get_input_embeddings().weight
        return [parameter for parameter in self.model.base_model.parameters() if parameter is not embeddings]

    def _read(self, decoder: Any, batch: Batch) -> Any:
        """The output and the cache of the trained layers for all tokens but the last two."""
        output = _call(decoder, batch)
        self.token_outputs = output.last_hidden_state
        return output

    def drift(self, batch: Batch, rows: Tensor) -> Tensor:
        """The cross-entropy of the trained target's next tokens against the original's, over the last batch's answers.

        `rows` [V, d]: the output matrix. This loss keeps the target's texts near those of the original.
        """
        # The layers did not read the last two columns, so they do not choose the token in the last one.
        chosen = batch.is_guessed(1)[:, :-1]
        wanted = (batch.last_states(1)[:, :-1][chosen] @ rows.T).float().softmax(-1)
        outputs = self.token_outputs[:, batch.width - 1 :][chosen]
        return functional.cross_entropy(self.logits(outputs, rows).float(), wanted)


def _call(decoder: Any, batch: Batch) -> Any:
    """The output of a model's layers for all tokens of a batch but the last two, with a cache."""
    return decoder(
        input_ids=batch.ids[:, :-2],
        attention_mask=batch.is_token[:, :-2].long(),
        position_ids=batch.positions[:, :-2],
        use_cache=True,
    )


def _mask(is_token: Tensor, first: int, count: int, dtype: torch.dtype) -> Tensor:
    """The additive attention mask [B, 1, M * count, T + M * count] of chains of `count` masks after each of M tokens.

    `is_token` [B, T] says which columns have a token; M is T - `first`. A mask sees the text up to the token that its
    chain follows, itself, and the masks before it in its chain.
    """
    width = is_token.shape[1]
    places = width - first
    anchors = torch.arange(first, width).repeat_interleave(count)
    text = (torch.arange(width) <= anchors[:, None]) & is_token[:, None]
    chains = torch.block_diag(*[torch.ones(count, count).tril()] * places).bool()
    seen = torch.cat([text, chains.expand(len(is_token), -1, -1)], -1)
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[:, None]
