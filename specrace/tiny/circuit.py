"""Initial weights that already copy: an induction circuit written into an ordinary Llama with attention biases.

"Head" stands for an attention head here. In layer 0, K heads attend 1, 2, ... K tokens back, one head attends to the
*stretch* (the tokens before those K), and one to the latest segment marker, a special token such as <|q|> before the
question. Each writes a code (48 dimensions) of what it attends to into a separate subspace of the residual stream.
Layer 1 compares the codes of the last K tokens, the stretch and the segment with the codes before every earlier
position. It attends to the position that matches best, and copies the token there. So training has to learn when to
copy, not how. Olsson et al. (2022) describe induction heads. The stretch distinguishes two passages that share a few
words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

# Untrained, these values copy 98 to 99 of 100 marked sentences (assets/tiny/README.md); for gains, weights and nats
# without a reason below, no record says how they were chosen.
HEAD_DIM = 64
# RoPE rotates the dimensions of a head in pairs.
PAIRS = HEAD_DIM // 2
ROPE_THETA = 1e14
# The first RoPE pairs rotate fast enough to encode position; the others hardly rotate in 1,000 tokens and hold content.
NUM_POSITION_PAIRS = 7
# The maximum of K. Three more heads are needed, so narrow models have a smaller K.
MAX_BACK = 5
# The dimensions of a code: in models of width WIDE or more, and in narrower ones. A head of layer 1 compares codes in
# about 43 dimensions; longer codes would leave fewer dimensions of the residual stream for the tokens.
CODE, NARROW_CODE = 48, 32
WIDE = 512
# The attention score of an exact match, in nats per code; its factors for the current token, the one before, and so on.
CODE_NATS = 13.0
BACK_WEIGHTS = (1.0, 1.2, 1.2, 1.2, 1.2)
# One head in four compares only three tokens, and the stretch with less weight. At the start of a quote, the preceding
# tokens differ from those in the passage, so fewer comparisons mean fewer chance matches. The other heads distinguish
# similar passages.
SHORT_EVERY, SHORT_BACK, SHORT_STRETCH = 4, 3, 1.0
# The stretch head's attention is about 9 tokens wide (standard deviation 4.4), around the token 10 back, because of
# these amplitudes (in nats), one for each position pair. The mean of the codes has a small norm, hence the gain.
# Centres of 10, 12 and 14 were compared before training, on training titles.
STRETCH_CENTRE = 10.0
STRETCH_NATS = (0.0, 0.2, 1.2, 8.0, 20.0, 20.0, 20.0)
STRETCH_GAIN = 3.8
STRETCH_WEIGHT = 1.5
# Attention scores in layer 1, in nats; an evidence marker precedes each sentence to quote. SEGMENT_NATS is added to
# keys in a segment with the same evidence marker as the query's; START_NATS, if the query is an evidence marker, to the
# key after the same marker. ANSWER_NATS is subtracted from keys inside the answer.
SEGMENT_NATS = 45.0
START_NATS = 60.0
ANSWER_NATS = 40.0
ANSWER_NORM = 0.4  # small, because with a larger one RMSNorm would scale the rest of the residual down
# The weights of the copied token and of the question's first words in the residual.
COPY_WEIGHT = 4.0
READER_GAIN = 0.1
# One amplitude for each position pair: together they make a marker's score fall with its distance. The latest marker
# wins by about 4 nats if it is less than 160 tokens back, and the marker before it at least 8 tokens further back, but
# at most 1,300 in all. These amplitudes have the smallest sum that achieves that; a linear programme computed them.
RECENCY_COSINES = (0.09, 0.03, 0.0, 2.74, 18.64, 7.59, 18.37)
RECENCY_SINES = (0.0, 0.0, 0.17, 1.74, 0.0, 19.28, 85.4)
# How much higher a marker scores than other tokens; each position pair's amplitude in heads with a fixed distance.
MARKER_NATS = 400.0
BACK_SHARPNESS = 24.0


def tiny_config(
    vocab_size: int, eos_token_id: int, *, hidden: int = 512, layers: int = 3, mlp: int = 512
) -> LlamaConfig:
    """The bundled model's shape: few wide layers, heads of 64, tied embeddings."""
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_DIM,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        attention_bias=True,
        eos_token_id=eos_token_id,
        bos_token_id=None,
        pad_token_id=eos_token_id,
    )


@dataclass(frozen=True)
class Heads:
    """What the heads of layer 0 attend to, by head number, and `code`, the dimensions of their codes.

    Heads 0 to `num_back` - 1 attend 1, 2, ... tokens back, the head `stretch` to the tokens before those, and the head
    `latest` to the latest marker. The head `answer` attends to the answer's marker, if there is one, so that tokens
    inside the answer are never copied.
    """

    num_back: int
    stretch: int
    latest: int
    answer: int
    code: int

    @classmethod
    def of(cls, hidden: int) -> Heads:
        """The heads of a model of width `hidden`. Raises ValueError for fewer than five heads."""
        num_back = min(MAX_BACK, hidden // HEAD_DIM - 3)
        if num_back < 2:
            raise ValueError(f"a width of {hidden} has too few heads for the circuit")
        code = CODE if hidden >= WIDE else NARROW_CODE
        return cls(num_back, stretch=num_back, latest=num_back + 1, answer=num_back + 2, code=code)


def orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """A random matrix [rows, columns] with orthonormal rows, or with orthonormal columns if there are fewer columns."""
    random = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
    basis: Tensor = torch.linalg.qr(random).Q
    return basis if rows >= columns else basis.T


@dataclass(frozen=True)
class Residual:
    """Orthogonal subspaces of the residual stream, for a width H and codes of C dimensions.

    `tokens` [H, T] spans the token embeddings. `code` [C, H] maps a unit embedding to its token's code, of norm about
    1. `writers` span the subspaces [H, C] that the heads of layer 0 write to. `answered` [H] is the direction that is
    set inside the answer.
    """

    heads: Heads
    tokens: Tensor
    code: Tensor
    writers: tuple[Tensor, ...]
    answered: Tensor

    @classmethod
    def draw(cls, hidden: int, generator: torch.Generator) -> Residual:
        """Random subspaces of `hidden` dimensions."""
        basis = orthonormal(hidden, hidden, generator)
        heads = Heads.of(hidden)
        # The heads up to `latest` write codes; one more dimension is for `answered`, the rest are for tokens.
        num_code_dims = (heads.latest + 1) * heads.code
        tokens = basis[:, num_code_dims + 1 :]
        code = orthonormal(heads.code, tokens.shape[1], generator) @ tokens.T
        writers = basis[:, :num_code_dims].split(heads.code, dim=1)
        code *= math.sqrt(tokens.shape[1] / heads.code)
        return cls(heads, tokens, code, writers, basis[:, num_code_dims])


@dataclass(frozen=True)
class Markers:
    """Token ids of the segment markers."""

    evidence: tuple[int, ...]
    question: int
    answer: int
    others: tuple[int, ...]

    @property
    def ids(self) -> list[int]:
        """The ids of all markers, those of evidence first."""
        return [*self.evidence, self.question, self.answer, *self.others]


@torch.no_grad()
def build_model(config: LlamaConfig, markers: Markers, seed: int = 0) -> LlamaForCausalLM:
    """A Llama whose first two layers copy, and whose third layer attends to the question's first words.

    If there are only two layers, a head of the second layer attends to the question's first word. All other weights are
    random.
    """
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    residual = Residual.draw(config.hidden_size, generator)
    size, width = residual.tokens.shape[1], residual.heads.code
    embeddings = torch.randn(config.vocab_size, size, generator=generator) @ residual.tokens.T
    embeddings /= embeddings.norm(dim=1, keepdim=True)
    # Marker embeddings lie in the code's subspace, so their codes are longer than those of words. A match of markers
    # then outweighs chance matches, so the first words of a marked sentence are copied as reliably as the last.
    marked = orthonormal(len(markers.ids), width, generator) @ residual.code * math.sqrt(width / size)
    embeddings[markers.ids] = marked
    model.model.embed_tokens.weight.copy_(embeddings)
    # What random weights add to the residual stream is kept small.
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(0.3)
        layer.mlp.down_proj.weight.mul_(0.3)
    # Makes the logits, which are small because all embeddings have norm 1, three times as large.
    model.model.norm.weight.fill_(3.0)
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    _write_fetchers(first, residual, marked)
    _write_answer_flag(first, residual, embeddings[markers.answer])
    _write_matchers(second, residual, _evidence_readouts(residual, marked, len(markers.evidence)), generator)
    model.model.layers[0].mlp.down_proj.weight.zero_()
    if len(model.model.layers) > 2:
        _write_question_readers(model.model.layers[2].self_attn, residual, embeddings[markers.question], 2)
    else:
        _write_question_readers(second, residual, embeddings[markers.question], 1)
    return model


def circuit_parameters(model: LlamaForCausalLM) -> list[torch.nn.Parameter]:
    """The parameters of the circuit: embeddings, layer 0, and layer 1's attention."""
    first, second = model.model.layers[:2]
    modules = (model.model.embed_tokens, first, second.self_attn, second.input_layernorm)
    return [parameter for module in modules for parameter in module.parameters()]


def _write_fetchers(attention: Any, residual: Residual, markers: Tensor) -> None:
    """Layer 0: heads that attend a fixed distance back, and the head that attends to the latest marker."""
    heads = residual.heads
    scale = math.sqrt(residual.code.shape[1])  # the norm of a unit embedding after RMSNorm
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.zero_()
        projection.bias.zero_()
    attention.o_proj.weight.zero_()
    for head, writer in enumerate(residual.writers):
        rows = slice(head * HEAD_DIM, head * HEAD_DIM + heads.code)
        attention.v_proj.weight[rows] = residual.code / scale
        attention.o_proj.weight[:, rows] = writer
    for head in range(heads.num_back):
        # Only the five fastest pairs.
        _look_back(attention, head, head + 1, (BACK_SHARPNESS,) * 5)
    _look_back(attention, heads.stretch, STRETCH_CENTRE, STRETCH_NATS)
    attention.o_proj.weight[:, heads.stretch * HEAD_DIM : heads.latest * HEAD_DIM] *= STRETCH_GAIN
    # A marker's code is longer than a word's. The head `latest`, the last of the writers, writes one at every position,
    # so its output is scaled down.
    attention.o_proj.weight[:, rows] /= math.sqrt(residual.tokens.shape[1] / heads.code)
    waves = zip(RECENCY_COSINES, RECENCY_SINES, strict=True)
    _score_distance(attention, heads.latest, [(math.hypot(*wave), -math.atan2(*wave[::-1])) for wave in waves])
    # The product with this vector is 1 for every marker's normalised embedding, and near 0 for other tokens.
    _look_at(attention, heads.latest, torch.linalg.pinv(markers * scale).sum(dim=1))


def _write_answer_flag(attention: Any, residual: Residual, answer: Tensor) -> None:
    """Layer 0: a head that attends to the answer's marker, if there is one, and then writes `answered`."""
    scale = math.sqrt(residual.code.shape[1])
    row = residual.heads.answer * HEAD_DIM
    _look_at(attention, residual.heads.answer, answer / scale)
    attention.v_proj.weight[row] = answer / scale
    attention.o_proj.weight[:, row] = ANSWER_NORM * residual.answered


def _look_at(attention: Any, head: int, readout: Tensor) -> None:
    """Add MARKER_NATS to the head's score of tokens whose normalised embedding has the product 1 with `readout`."""
    content = head * HEAD_DIM + PAIRS - 1  # the pair that rotates slowest, so the score hardly depends on distance
    strength = _strength(MARKER_NATS)
    attention.q_proj.bias[content] = strength
    attention.k_proj.weight[content] = readout * strength


def _look_back(attention: Any, head: int, distance: float, nats: Sequence[float]) -> None:
    """Make `head` attend `distance` tokens back. `nats`: the amplitude of each position pair; more make it sharper."""
    waves = [(amplitude, distance * ROPE_THETA ** (-pair / PAIRS)) for pair, amplitude in enumerate(nats)]
    _score_distance(attention, head, waves)


def _strength(nats: float) -> float:
    """The factor of both query and key that gives a score of `nats`."""
    return math.sqrt(nats * math.sqrt(HEAD_DIM))


def _score_distance(attention: Any, head: int, waves: Sequence[tuple[float, float]]) -> None:
    """Set biases so that every token gets a score that depends only on its distance.

    The score of key position i for query position p is the sum over pairs j of nats_j * cos(f_j * (p - i) - phase_j),
    where f_j is RoPE's frequency of pair j. `waves` are (nats_j, phase_j).
    """
    for pair, (amplitude, phase) in enumerate(waves):
        strength = _strength(amplitude)
        first = head * HEAD_DIM + pair
        attention.k_proj.bias[first] = strength
        attention.q_proj.bias[first] = strength * math.cos(phase)
        attention.q_proj.bias[first + PAIRS] = -strength * math.sin(phase)


def _write_question_readers(attention: Any, residual: Residual, question: Tensor, count: int) -> None:
    """Make the first `count` heads attend to the question's first words, and write the words' codes to free dimensions.

    No later layer reads these dimensions yet. The answer's opening depends on the words; training learns how.
    """
    width = residual.heads.code
    for head in range(count):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight[rows] = 0
            projection.bias[rows] = 0
        # Head 0 attends to the token one after the question's marker, head 1 to the token two after it.
        readout = residual.writers[head] @ (residual.code @ question)
        writer = residual.writers[head + residual.heads.num_back // 2]
        _look_at(attention, head, readout * READER_GAIN / readout.norm())
        attention.v_proj.weight[rows] = 0
        attention.v_proj.weight[rows][:width] = residual.code
        attention.o_proj.weight[:, rows] = 0
        attention.o_proj.weight[:, rows][:, :width] = READER_GAIN * writer


def _write_matchers(
    attention: Any, residual: Residual, readouts: tuple[Tensor, Tensor], generator: torch.Generator
) -> None:
    """Layer 1, every head: match tokens, stretches and segments, and copy.

    The current token is matched with the token 1 before a key, the token 1 back with the token 2 before the key, and so
    on. `readouts` are what `_evidence_readouts` returns, [E, H] and [E, C] for E evidence markers.
    """
    hidden, size = residual.tokens.shape
    # The dimensions of the RoPE pairs that hardly rotate.
    slow = [*range(NUM_POSITION_PAIRS, PAIRS), *range(PAIRS + NUM_POSITION_PAIRS, HEAD_DIM)]
    unit = _unit(residual)
    segment, start = readouts
    # The slowest dimension flags the answer. The next slowest hold the number of the evidence marker, one dimension for
    # each: first of the segment's, then of a marker itself. The codes of words share the other slow dimensions.
    count = len(segment)
    flag = slow[-1]
    marked = slow[-1 - count : -1]
    starts = slow[-1 - 2 * count : -1 - count]
    slow = slow[: -1 - 2 * count]
    for head in range(hidden // HEAD_DIM):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        queries, keys = _word_matchers(residual, slow, generator, short=head % SHORT_EVERY == 0)
        queries[marked], keys[marked] = segment, segment
        queries[starts], keys[starts] = start @ residual.code, start @ residual.writers[0].T
        attention.q_proj.weight[rows], attention.k_proj.weight[rows] = queries, keys
        # Each head copies the token through its own projection, so a few heads that attend elsewhere are outvoted.
        values = orthonormal(HEAD_DIM, size, generator) @ residual.tokens.T
        attention.v_proj.weight[rows] = values
        attention.o_proj.weight[:, rows] = values.T * COPY_WEIGHT * size / (hidden * unit)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.bias.zero_()
    # Keys inside the answer lose ANSWER_NATS against every query.
    strength = _strength(ANSWER_NATS)
    attention.q_proj.bias[flag::HEAD_DIM] = strength
    attention.k_proj.weight[flag::HEAD_DIM] = -residual.answered * strength / (ANSWER_NORM * unit)


def _unit(residual: Residual) -> float:
    """The norm after RMSNorm of the token and of each head's code, which have a norm of about 1 before."""
    num_vectors = residual.heads.latest + 2  # the token, and the codes of heads 0 to `latest`
    return math.sqrt(residual.tokens.shape[0]) / math.sqrt(num_vectors)


def _word_matchers(
    residual: Residual, slow: list[int], generator: torch.Generator, *, short: bool
) -> tuple[Tensor, Tensor]:
    """One head's queries and keys [64, H], which compare the last tokens and the stretch in the dimensions `slow`."""
    width = residual.heads.code
    gain = math.sqrt(CODE_NATS * math.sqrt(HEAD_DIM) * max(1.0, width / len(slow))) / _unit(residual)
    readers = [residual.code, *(writer.T for writer in residual.writers)]
    queries, keys = torch.zeros(2, HEAD_DIM, residual.tokens.shape[0])
    num_back = min(SHORT_BACK, residual.heads.num_back) if short else residual.heads.num_back
    for back, weight in enumerate(BACK_WEIGHTS[:num_back]):
        mixer = orthonormal(len(slow), width, generator)
        queries[slow] += gain * weight * mixer @ readers[back]
        keys[slow] += gain * mixer @ readers[back + 1]
    # The stretch before the query is compared with that before the key, not with the one a token earlier, because it is
    # so wide that an offset of one token hardly matters.
    mixer = (SHORT_STRETCH if short else STRETCH_WEIGHT) ** 0.5 * orthonormal(len(slow), width, generator)
    queries[slow] += gain * mixer @ readers[residual.heads.stretch + 1]
    keys[slow] += gain * mixer @ readers[residual.heads.stretch + 1]
    return queries, keys


def _evidence_readouts(residual: Residual, marked: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Matrices that read an evidence marker's number: from the segment [count, H], and from a token's code [count, C].

    `count` is the number of evidence markers.
    """
    size, width = residual.tokens.shape[1], residual.heads.code
    codes = marked @ residual.code.T / math.sqrt(size / width)
    number = torch.linalg.pinv(codes).T[:count] / _unit(residual)
    segment = _strength(SEGMENT_NATS) * number @ residual.writers[residual.heads.latest].T
    # After a marker, copy what followed the same marker before. A marker's long code is scaled to norm 1.
    start = _strength(START_NATS) * number * math.sqrt(width / size)
    return segment, start
