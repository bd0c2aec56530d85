"""First weights that already copy: an induction circuit written into an ordinary Llama with biases in its attention.

Layer 0, heads 1..K look exactly 1..K tokens back; one more head looks at the latest segment marker. Each writes a
64-dimensional code of the token it sees into its own part of the residual. Layer 1 compares the codes of the last K
tokens, and of the segment, with those in front of every earlier position, and copies the token that stood there.
Training then has to learn when to copy, not how. (Induction heads: Olsson et al., 2022.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

HEAD_DIM = 64
PAIRS = HEAD_DIM // 2
ROPE_THETA = 1e14
# Pairs that turn fast enough to tell positions apart; the others hardly turn within 1,000 tokens and carry content.
NUM_POSITION_PAIRS = 7
NUM_BACK = 5
LATEST_HEAD = NUM_BACK
# Tells whether the answer has begun; what stands in the answer is never copied from.
ANSWER_HEAD = NUM_BACK + 1
# Score of an exact match, in nats a code.
CODE_NATS = 8.0
BACK_WEIGHTS = (1.0, 1.2, 1.2, 1.2, 1.2)
SEGMENT_NATS = 20.0
START_NATS = 40.0
ANSWER_NATS = 40.0
ANSWER_NORM = 0.4  # short, for what is in the residual takes from what else is there
COPY_WEIGHT = 4.0
# Amplitudes over the position pairs so that, among markers, the latest wins by 6 nats when it is at most 50 tokens
# back and the next is at least 8 further (up to 900): a linear programme, minimal sum of amplitudes.
RECENCY_NATS = (0.40, 1.14, 2.66, 21.42, 25.56, 24.88, 14.58)
MARKER_NATS = 160.0
BACK_SHARPNESS = 24.0


def tiny_config(
    vocab_size: int, *, eos_token_id: int, hidden: int = 512, layers: int = 3, mlp: int = 512
) -> LlamaConfig:
    """The shape of the bundled model: few wide layers, heads of 64, tied embeddings."""
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_DIM,
        num_key_value_heads=hidden // HEAD_DIM,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        attention_bias=True,
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


@dataclass(frozen=True)
class Residual:
    """How the residual is shared out: parts that are orthogonal, so that none disturbs another.

    `code` [64, H] reads a token's code from its embedding, of norm 1 for a unit embedding.
    `writers` are NUM_BACK + 1 parts [H, 64], one a fetching head; `answered` [H] says that the answer has begun;
    `tokens` [H, rest] is what is left, where embeddings live.
    """

    tokens: Tensor
    code: Tensor
    writers: tuple[Tensor, ...]
    answered: Tensor

    @classmethod
    def draw(cls, hidden: int, generator: torch.Generator) -> Residual:
        """Random parts of a residual of `hidden` dimensions."""
        basis = orthonormal(hidden, hidden, generator)
        num_codes = (NUM_BACK + 1) * HEAD_DIM
        tokens = basis[:, num_codes + 1 :]
        code = orthonormal(HEAD_DIM, tokens.shape[1], generator) @ tokens.T
        writers = basis[:, :num_codes].split(HEAD_DIM, dim=1)
        return cls(tokens, code * math.sqrt(tokens.shape[1] / HEAD_DIM), writers, basis[:, num_codes])


@torch.no_grad()
def build_model(config: LlamaConfig, marker_ids: list[int], answer_id: int, seed: int = 0) -> LlamaForCausalLM:
    """A Llama whose first two layers copy; the rest is small noise.

    `marker_ids` are the segment markers, `answer_id` is the one among them that begins the answer.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    parts = Residual.draw(config.hidden_size, generator)
    size = parts.tokens.shape[1]
    embeddings = torch.randn(config.vocab_size, size, generator=generator) @ parts.tokens.T
    embeddings /= embeddings.norm(dim=1, keepdim=True)
    # Markers lie where the code looks, so their codes are longer than a word's: a match on a marker outweighs chance
    # matches, and the first words of a marked sentence are found as surely as the last.
    markers = orthonormal(len(marker_ids), HEAD_DIM, generator) @ parts.code * math.sqrt(HEAD_DIM / size)
    embeddings[marker_ids] = markers
    model.model.embed_tokens.weight.copy_(embeddings)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(0.3)
        layer.mlp.down_proj.weight.mul_(0.3)
    model.model.norm.weight.fill_(3.0)
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    _write_fetchers(first, parts, markers)
    _write_answer_flag(first, parts, embeddings[answer_id])
    _write_matchers(second, parts, markers, generator)
    keep_parts_apart(model, parts.tokens)
    return model


@torch.no_grad()
def keep_parts_apart(model: LlamaForCausalLM, tokens: Tensor) -> None:
    """Project embeddings and the output of layer 0's MLP onto the tokens' part; training does so after every step."""
    embeddings = model.model.embed_tokens.weight
    embeddings.copy_((embeddings @ tokens) @ tokens.T)
    output = model.model.layers[0].mlp.down_proj.weight
    output.copy_(tokens @ (tokens.T @ output))


def token_part(config: LlamaConfig, seed: int) -> Tensor:
    """The tokens' part of the residual of `build_model(config, ..., seed)`."""
    return Residual.draw(config.hidden_size, torch.Generator().manual_seed(seed)).tokens


def _write_fetchers(attention: Any, parts: Residual, markers: Tensor) -> None:
    """Layer 0: heads that look a fixed distance back, and the head that looks at the latest marker."""
    scale = math.sqrt(parts.code.shape[1])  # norm of a unit embedding after RMSNorm
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.zero_()
        projection.bias.zero_()
    attention.o_proj.weight.zero_()
    for head, writer in enumerate(parts.writers):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        attention.v_proj.weight[rows] = parts.code / scale
        attention.o_proj.weight[:, rows] = writer
    for head in range(NUM_BACK):
        _look_back(attention, head, head + 1, [BACK_SHARPNESS] * 5)
    # A marker's code is longer than a word's; the segment, which every position carries, must not drown the rest.
    attention.o_proj.weight[:, rows] /= math.sqrt(parts.tokens.shape[1] / HEAD_DIM)
    _look_back(attention, LATEST_HEAD, 0, list(RECENCY_NATS))
    # One direction on which every marker's normalised embedding has the same value, and other tokens about none.
    _look_at(attention, LATEST_HEAD, torch.linalg.pinv(markers * scale).sum(dim=1))


def _write_answer_flag(attention: Any, parts: Residual, answer: Tensor) -> None:
    """Layer 0: a head that looks at the answer's marker once there is one, and then writes `answered`."""
    scale = math.sqrt(parts.code.shape[1])
    row = ANSWER_HEAD * HEAD_DIM
    _look_at(attention, ANSWER_HEAD, answer / scale)
    attention.v_proj.weight[row] = answer / scale
    attention.o_proj.weight[:, row] = ANSWER_NORM * parts.answered


def _look_at(attention: Any, head: int, readout: Tensor) -> None:
    """Give `head` MARKER_NATS for tokens whose normalised embedding has 1 on `readout`."""
    content = head * HEAD_DIM + PAIRS - 1  # the slowest pair: it does not notice distance
    strength = math.sqrt(MARKER_NATS * math.sqrt(HEAD_DIM))
    attention.q_proj.bias[content] = strength
    attention.k_proj.weight[content] = readout * strength


def _look_back(attention: Any, head: int, distance: int, nats: list[float]) -> None:
    """Biases that make `head`'s score sum_j nats[j] * cos(f_j * (p - i - distance)), whatever the tokens."""
    for pair, (frequency, amplitude) in enumerate(zip(frequencies(), nats, strict=False)):
        strength = math.sqrt(amplitude * math.sqrt(HEAD_DIM))
        first, second = head * HEAD_DIM + pair, head * HEAD_DIM + pair + PAIRS
        attention.k_proj.bias[first] = strength
        attention.q_proj.bias[first] = strength * math.cos(frequency * distance)
        attention.q_proj.bias[second] = -strength * math.sin(frequency * distance)


def _take(dimensions: list[int], *counts: int) -> list[list[int]]:
    """Lists of so many dimensions each from the end, and what is left."""
    taken = []
    for count in counts:
        taken.append(dimensions[-count:])
        dimensions = dimensions[:-count]
    return [*taken, dimensions]


def _write_matchers(attention: Any, parts: Residual, markers: Tensor, generator: torch.Generator) -> None:
    """Layer 1, every head: match (current, 1 back, ...) with (1 back, ...), and the segments; copy the token."""
    hidden, size = parts.tokens.shape
    slow = [*range(NUM_POSITION_PAIRS, PAIRS), *range(PAIRS + NUM_POSITION_PAIRS, HEAD_DIM)]
    # A marker's number, exactly, on the slowest dimensions; the codes of words share the others.
    flag, marked, starts, slow = _take(slow, 1, len(markers), len(markers))
    # The residual holds the token and six codes, each of norm about 1: after RMSNorm each has this norm.
    unit = math.sqrt(hidden) / math.sqrt(NUM_BACK + 2)
    gain = math.sqrt(CODE_NATS * math.sqrt(HEAD_DIM) * HEAD_DIM / len(slow)) / unit
    codes = markers @ parts.code.T / math.sqrt(size / HEAD_DIM)
    seen = [parts.code, *(writer.T for writer in parts.writers)]
    which = torch.linalg.pinv(codes).T / unit
    segment = math.sqrt(SEGMENT_NATS * math.sqrt(HEAD_DIM)) * which @ seen[-1]
    # After a marker, what followed the same marker before: its long code counts here as one.
    start = math.sqrt(START_NATS * math.sqrt(HEAD_DIM)) * which * math.sqrt(HEAD_DIM / size)
    num_heads = hidden // HEAD_DIM
    for head in range(num_heads):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        queries, keys = torch.zeros(HEAD_DIM, hidden), torch.zeros(HEAD_DIM, hidden)
        for back, weight in enumerate(BACK_WEIGHTS):
            mixer = orthonormal(len(slow), HEAD_DIM, generator)
            queries[slow] += gain * weight * mixer @ seen[back]
            keys[slow] += gain * mixer @ seen[back + 1]
        queries[marked], keys[marked] = segment, segment
        queries[starts], keys[starts] = start @ seen[0], start @ seen[1]
        attention.q_proj.weight[rows], attention.k_proj.weight[rows] = queries, keys
        # Every head carries the token through a projection of its own: a few that look astray are outvoted.
        values = orthonormal(HEAD_DIM, size, generator) @ parts.tokens.T
        attention.v_proj.weight[rows] = values
        attention.o_proj.weight[:, rows] = values.T * COPY_WEIGHT * size / (hidden * unit)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.bias.zero_()
    # Keys inside the answer lose ANSWER_NATS against every query.
    strength = math.sqrt(ANSWER_NATS * math.sqrt(HEAD_DIM))
    attention.q_proj.bias[flag[0] :: HEAD_DIM] = strength
    attention.k_proj.weight[flag[0] :: HEAD_DIM] = -parts.answered * strength / (ANSWER_NORM * unit)
