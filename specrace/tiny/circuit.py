"""First weights that already copy: an induction circuit written into an ordinary Qwen2.

Layer 0, heads 1..K look exactly 1..K tokens back; one more head looks at the latest segment marker. Each writes a
64-dimensional code of the token it sees into its own part of the residual. Layer 1 compares the codes of the last K
tokens, and of the segment, with those in front of every earlier position, and copies the token that stood there.
Training then has to learn when to copy, not how. (Induction heads: Olsson et al., 2022.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

HEAD_DIM = 64
PAIRS = HEAD_DIM // 2
ROPE_THETA = 1e14
# Pairs that turn fast enough to tell positions apart; the others hardly turn within 1,000 tokens and carry content.
NUM_POSITION_PAIRS = 7
NUM_BACK = 5
LATEST_HEAD = NUM_BACK
# Score of an exact match, in nats a code.
CODE_NATS = 7.0
BACK_WEIGHTS = (1.0, 1.2, 1.2, 1.2, 1.2)
SEGMENT_NATS = 14.0
COPY_WEIGHT = 4.0
# Amplitudes over the position pairs so that, among markers, the latest wins by 3 nats when it is at most 50 tokens
# back and the next is at least 8 further (up to 900): a linear programme, minimal sum of amplitudes.
RECENCY_NATS = (0.20, 0.57, 1.33, 10.71, 12.78, 12.44, 7.29)
MARKER_NATS = 90.0
BACK_SHARPNESS = 24.0


def tiny_config(
    vocab_size: int, *, eos_token_id: int, hidden: int = 512, layers: int = 3, mlp: int = 512
) -> Qwen2Config:
    """The shape of the bundled model: few wide layers, heads of 64, tied embeddings."""
    return Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_DIM,
        num_key_value_heads=hidden // HEAD_DIM,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        use_sliding_window=False,
        eos_token_id=eos_token_id,
        bos_token_id=None,
        pad_token_id=eos_token_id,
    )


def frequencies() -> np.ndarray:
    """Rotation of each pair a position, in radians, shape [32]."""
    return ROPE_THETA ** (-np.arange(PAIRS) / PAIRS)


def orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Random orthonormal rows (or columns, whichever are fewer), shape [rows, columns]."""
    square = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
    basis: Tensor = torch.linalg.qr(square).Q
    return basis if rows >= columns else basis.T


@torch.no_grad()
def build_model(config: Qwen2Config, marker_ids: list[int], seed: int = 0) -> Qwen2ForCausalLM:
    """A Qwen2 whose first two layers copy; the rest is small noise. `marker_ids`: ids of the segment markers."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    embeddings = torch.randn(config.vocab_size, config.hidden_size, generator=generator)
    embeddings /= embeddings.norm(dim=1, keepdim=True)
    code = orthonormal(HEAD_DIM, config.hidden_size, generator)
    # Markers lie where the code looks, so their codes are sqrt(hidden / 64) times as long as a word's: a match on a
    # marker outweighs chance matches, and the first words of a marked sentence are found as surely as the last.
    embeddings[marker_ids] = orthonormal(len(marker_ids), HEAD_DIM, generator) @ code
    model.model.embed_tokens.weight.copy_(embeddings)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(0.3)
        layer.mlp.down_proj.weight.mul_(0.3)
    model.model.norm.weight.fill_(3.0)
    # Codes live in subspaces of the residual that are orthogonal to each other, hence do not disturb one another.
    writers = list(orthonormal(config.hidden_size, (NUM_BACK + 1) * HEAD_DIM, generator).split(HEAD_DIM, dim=1))
    markers = embeddings[marker_ids]
    _write_fetchers(model.model.layers[0].self_attn, code, writers, markers, config)
    _write_matchers(model.model.layers[1].self_attn, code, writers, markers, generator)
    return model


def _write_fetchers(attention: Any, code: Tensor, writers: list[Tensor], markers: Tensor, config: Qwen2Config) -> None:
    """Layer 0: heads that look a fixed distance back, and the head that looks at the latest marker."""
    scale = math.sqrt(config.hidden_size)  # norm of a unit embedding after RMSNorm
    for head in range(NUM_BACK + 1):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[rows] = 0
            projection.bias[rows] = 0
        attention.v_proj.weight[rows] = code
        attention.v_proj.bias[rows] = 0
        # A code has norm scale * sqrt(64 / hidden) before the writer; bring it to the embedding's norm, 1.
        attention.o_proj.weight[:, rows] = writers[head] / (scale * math.sqrt(HEAD_DIM / config.hidden_size))
    # A marker's code is that much longer; the segment, which every position carries, must not drown the rest.
    attention.o_proj.weight[:, rows] /= math.sqrt(config.hidden_size / HEAD_DIM)
    for head in range(NUM_BACK):
        _look_back(attention, head, head + 1, [BACK_SHARPNESS] * 5)
    _look_back(attention, LATEST_HEAD, 0, list(RECENCY_NATS))
    content = LATEST_HEAD * HEAD_DIM + PAIRS - 1  # the slowest pair: it does not notice distance
    strength = math.sqrt(MARKER_NATS * math.sqrt(HEAD_DIM))
    attention.q_proj.bias[content] = strength
    # One direction on which every marker's normalised embedding has the same value, and other tokens about none.
    readout = torch.linalg.pinv(markers * scale) @ torch.full((len(markers),), strength)
    attention.k_proj.weight[content] = readout


def _look_back(attention: Any, head: int, distance: int, nats: list[float]) -> None:
    """Biases that make `head`'s score sum_j nats[j] * cos(f_j * (p - i - distance)), whatever the tokens."""
    for pair, (frequency, amplitude) in enumerate(zip(frequencies(), nats, strict=False)):
        strength = math.sqrt(amplitude * math.sqrt(HEAD_DIM))
        first, second = head * HEAD_DIM + pair, head * HEAD_DIM + pair + PAIRS
        attention.k_proj.bias[first] = strength
        attention.q_proj.bias[first] = strength * math.cos(frequency * distance)
        attention.q_proj.bias[second] = -strength * math.sin(frequency * distance)


def _write_matchers(
    attention: Any, code: Tensor, writers: list[Tensor], markers: Tensor, generator: torch.Generator
) -> None:
    """Layer 1, every head: match (current, 1 back, ...) with (1 back, ...), and the segments; copy the token."""
    hidden = code.shape[1]
    slow = [*range(NUM_POSITION_PAIRS, PAIRS), *range(PAIRS + NUM_POSITION_PAIRS, HEAD_DIM)]
    # A marker's number, exactly, on the slowest dimensions; the codes of words share the others.
    slow, marked = slow[: -len(markers)], slow[-len(markers) :]
    # The residual holds the token and six codes, each of norm about 1: after RMSNorm each has this norm.
    unit = math.sqrt(hidden) / math.sqrt(NUM_BACK + 2)
    token_code = code * math.sqrt(hidden / HEAD_DIM)  # of norm 1 for a unit embedding, like the written codes
    gain = math.sqrt(CODE_NATS * math.sqrt(HEAD_DIM) * HEAD_DIM / len(slow)) / unit
    which = torch.linalg.pinv(markers @ code.T).T @ writers[LATEST_HEAD].T
    segment = math.sqrt(SEGMENT_NATS * math.sqrt(HEAD_DIM)) / unit * which
    values = orthonormal(hidden, hidden, generator)
    seen = [token_code, *(writer.T for writer in writers[:NUM_BACK])]
    for head in range(hidden // HEAD_DIM):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        queries, keys = torch.zeros(HEAD_DIM, hidden), torch.zeros(HEAD_DIM, hidden)
        for back, weight in enumerate(BACK_WEIGHTS):
            mixer = orthonormal(len(slow), HEAD_DIM, generator)
            queries[slow] += gain * weight * mixer @ seen[back]
            keys[slow] += gain * mixer @ seen[back + 1]
        queries[marked], keys[marked] = segment, segment
        attention.q_proj.weight[rows], attention.k_proj.weight[rows] = queries, keys
        attention.v_proj.weight[rows] = values[rows]
    attention.o_proj.weight.copy_(values.T * COPY_WEIGHT / unit)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.bias.zero_()
