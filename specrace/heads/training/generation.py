"""A target's own answers to many prompts at once, with the states that heads read.

Rows of a batch are padded on the left; a row that has ended leaves the batch, and its keys and values are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

# Finished rows are dropped from the batch once less than this share of its rows is still running: dropping copies all
# keys and values, so it should not happen at every step (not tuned).
_COMPACT_AT = 0.75


@dataclass(frozen=True)
class Generated:
    """A prompt and its answer: `ids` [T], of which the first `start` are the prompt.

    `features` [T-1, levels, d]: the states of all tokens but the last, which was never fed to the target.
    """

    ids: Tensor
    start: int
    features: Tensor


class _FixedLayer(DynamicLayer):
    """Keys and values of one layer in storage for `room` tokens, so that a step writes one column and copies none."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.length, self.is_initialized = room, 0, False

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            shape = (*key_states.shape[:2], self.room, key_states.shape[3])
            self.keys, self.values = key_states.new_empty(shape), value_states.new_empty(shape)
            self.is_initialized = True
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length


@contextmanager
def tapped(model: Any, levels: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Inside the `with` block, each forward of the model puts its states into the yielded dict: level -> [B, T, d].

    Level i is the state that enters layer i; the level after the last layer is the state after the final norm.
    """
    states: dict[int, Tensor] = {}
    layers = model.model.layers

    def keep(level: int) -> Any:
        def hook(_module: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            states[level] = arguments[0] if arguments else options["hidden_states"]

        return hook

    def keep_last(_module: Any, _arguments: Any, output: Tensor) -> None:
        states[len(layers)] = output

    hooks = [
        layers[level].register_forward_pre_hook(keep(level), with_kwargs=True)
        for level in levels
        if level < len(layers)
    ]
    if len(layers) in levels:
        hooks.append(model.model.norm.register_forward_hook(keep_last))
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    temperatures: Sequence[float],
    *,
    max_new_tokens: int,
    ends: Sequence[int],
    levels: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> list[Generated]:
    """The answers of a causal language model to a batch of prompts, in order; each at its own temperature (0: greedy).

    An answer ends after one of the tokens `ends` or at `max_new_tokens`. `levels`: which states to keep (see `tapped`).
    """
    width = max(map(len, prompts))
    room = width + max_new_tokens
    ids = torch.zeros(len(prompts), room, dtype=torch.long)
    mask = torch.zeros(len(prompts), room, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) : width] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    hidden_size = model.config.hidden_size
    features = torch.empty(len(prompts), room if levels else 0, len(levels), hidden_size, dtype=model.dtype)
    lengths = _decode(model, ids, mask, torch.tensor(temperatures), width, set(ends), levels, features, generator)
    return [
        Generated(
            ids[row, width - len(prompt) : length].clone(),
            len(prompt),
            features[row, width - len(prompt) : length - 1].clone(),
        )
        for row, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]


def _decode(
    model: Any,
    ids: Tensor,
    mask: Tensor,
    temperatures: Tensor,
    width: int,
    ends: set[int],
    levels: Sequence[int],
    features: Tensor,
    generator: torch.Generator | None,
) -> list[int]:
    """Fill `ids` [B, room] and `features` in place from column `width` on; returns each row's length in columns."""
    num_rows, room = ids.shape
    cache = Cache(layers=[_FixedLayer(room) for _ in range(model.config.num_hidden_layers)])
    lengths = [room] * num_rows
    # The rows of the batch that goes through the model, and which of them have not ended.
    rows, is_running = torch.arange(num_rows), torch.ones(num_rows, dtype=torch.bool)
    # The columns that the next forward reads: the prompts, then one at a time.
    first, end = 0, width
    with tapped(model, levels) as states:
        while end < room and is_running.any():
            positions = (mask[rows, :end].cumsum(1) - 1).clamp_min(0)[:, first:]
            last = model.model(
                input_ids=ids[rows, first:end],
                attention_mask=mask[rows, :end],
                position_ids=positions,
                past_key_values=cache,
            ).last_hidden_state[:, -1]
            for number, level in enumerate(levels):
                features[rows, first:end, number] = states[level]
            ids[rows, end] = _draw(model.lm_head(last), temperatures[rows], generator)
            first, end = end, end + 1
            for place, (row, token) in enumerate(zip(rows.tolist(), ids[rows, first].tolist(), strict=True)):
                if is_running[place] and token in ends:
                    is_running[place], lengths[row] = False, end
            if is_running.float().mean() < _COMPACT_AT:
                running = is_running.nonzero()[:, 0]
                cache.batch_select_indices(running)
                rows, is_running = rows[running], is_running[running]
    return lengths


def _draw(logits: Tensor, temperatures: Tensor, generator: torch.Generator | None) -> Tensor:
    """A token for each row of logits [B, V]: the likeliest at temperature 0, else drawn."""
    logits = logits.float()
    tokens = logits.argmax(-1)
    is_drawn = temperatures > 0
    if is_drawn.any():
        scaled = logits[is_drawn] / temperatures[is_drawn, None]
        tokens[is_drawn] = torch.multinomial(scaled.softmax(-1), 1, generator=generator)[:, 0]
    return tokens
