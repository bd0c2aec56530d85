"""Where training starts: if a state is linear in the last state and token, heads guess it at every depth."""

from __future__ import annotations

import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch, collate
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.eagle import Eagle
from specrace.heads.modules.hydra import Hydra
from specrace.heads.training.linear_start import start_hydra, start_linear
from specrace.heads.training.trainer import state_error

SIZE, VOCAB, DEPTHS = 8, 30, 3
CONFIG = HeadConfig(
    hidden_size=SIZE,
    intermediate_size=SIZE,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=4,
    vocab_size=VOCAB,
    draft_vocab_size=VOCAB,
    num_heads=DEPTHS,
)


def linear_conversations() -> tuple[Batch, Tensor]:
    """Three conversations of different lengths, and the embeddings of their tokens.

    Each state is linear in the state before it and its token's embedding.
    """
    generator = torch.Generator().manual_seed(2)
    embeddings = torch.randn(VOCAB, SIZE, generator=generator)
    # Orthogonal matrices times 0.9, so that the states do not grow.
    turn, mix = (torch.linalg.qr(torch.randn(SIZE, SIZE, generator=generator))[0] * 0.9 for _ in range(2))
    conversations = []
    for prompt, answer in ((4, 30), (9, 26), (2, 33)):
        ids = torch.randint(0, VOCAB, (prompt + answer,), generator=generator)
        states = [torch.randn(SIZE, generator=generator)]
        for token in ids[1:-1]:
            states.append(turn @ states[-1] + mix @ embeddings[token] + 0.5)
        conversations.append((ids, prompt, torch.stack(states)[:, None]))
    return collate(conversations), embeddings


@torch.no_grad()
def test_heads_start_at_the_best_linear_guess() -> None:
    batch, embeddings = linear_conversations()
    eagle, hydra = Eagle(CONFIG), Hydra(CONFIG)
    # Random weights are far off; the linear fit, which the states follow exactly, leaves only the ridge's error.
    for head in (eagle, hydra):
        assert state_error(head.guesses(batch, embeddings[batch.ids], DEPTHS), batch) > 0.5
    start_linear(eagle, [batch], embeddings)
    start_hydra(hydra, [batch], embeddings)
    for head in (eagle, hydra):
        assert state_error(head.guesses(batch, embeddings[batch.ids], DEPTHS), batch) < 1e-3
