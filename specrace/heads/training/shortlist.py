"""The tokens that a head can guess: those that the target writes most often (FR-Spec, arXiv 2502.14856)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def choose_shortlist(answers: Iterable[Tensor], size: int, vocab_size: int, ends: Sequence[int]) -> Tensor:
    """Ids of the `size` commonest tokens of the answers, in increasing order; `ends` are always among them."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for answer in answers:
        counts += torch.bincount(answer, minlength=vocab_size)
    counts[list(ends)] = counts.max() + 1
    # Ties go to the lower ids, which a tokenizer learned earlier.
    return torch.sort(counts, descending=True, stable=True).indices[: min(size, vocab_size)].sort().values


def coverage(answers: Iterable[Tensor], shortlist: Tensor) -> float:
    """The share of the answers' tokens that are in the shortlist."""
    tokens = torch.cat(list(answers))
    return float(torch.isin(tokens, shortlist).float().mean())


def offsets(shortlist: Tensor) -> Tensor:
    """`d2t` of published heads: what to add to a place in the shortlist to get the token's id, int64 [Vd]."""
    return shortlist - torch.arange(len(shortlist))
