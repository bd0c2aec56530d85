"""A batch of conversations, as heads see it in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """B conversations whose answers all begin in column `width`; prompts are padded on the left, answers on the right.

    `ids` [B, T]; `is_token` bool [B, T]: False for padding; `states` [B, T-1, levels, d]: the target's hidden states
    at some levels (before some of its layers), zero for padding; the last level is the one after the final norm. Of the
    last token of a conversation there is no state, because it was never fed to the target.
    """

    ids: Tensor
    is_token: Tensor
    states: Tensor
    width: int

    @property
    def positions(self) -> Tensor:
        """The position of each column in its conversation, [B, T]."""
        return (self.is_token.cumsum(1) - 1).clamp_min(0)

    def guessed(self, depth: int) -> Tensor:
        """The tokens that drafts of this depth (1, 2, ...) guess: [B, A - depth + 1], A being the longest answer."""
        return self.ids[:, self.width + depth - 1 :]

    def is_guessed(self, depth: int) -> Tensor:
        """Which of `guessed(depth)` are tokens of an answer, bool of the same shape."""
        return self.is_token[:, self.width + depth - 1 :]

    def last_states(self, depth: int) -> Tensor:
        """The target's last-level states from which it drew `guessed(depth)`, [B, A - depth + 1, d]."""
        return self.states[:, self.width + depth - 2 :, -1]


def collate(conversations: Sequence[tuple[Tensor, int, Tensor]]) -> Batch:
    """A batch of (ids [T], number of prompt tokens, states [T-1, levels, d]); prompts have at least two tokens."""
    width = max(start for _, start, _ in conversations)
    longest_answer = max(len(ids) - start for ids, start, _ in conversations)
    count, (levels, size) = len(conversations), conversations[0][2].shape[1:]
    tokens = torch.zeros(count, width + longest_answer, dtype=torch.long)
    is_token = torch.zeros(count, width + longest_answer, dtype=torch.bool)
    all_states = torch.zeros(count, width + longest_answer - 1, levels, size)
    for row, (ids, start, states) in enumerate(conversations):
        first = width - start
        tokens[row, first : first + len(ids)] = ids
        is_token[row, first : first + len(ids)] = True
        all_states[row, first : first + len(states)] = states
    return Batch(tokens, is_token, all_states, width)
