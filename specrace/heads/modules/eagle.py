"""EAGLE (Li et al. 2024, arXiv 2401.15077) and EAGLE-3 (Li et al. 2025, arXiv 2503.01840) as modules to train.

A pair is the target's state at position t and the token at t + 1; from the pairs so far a head guesses the token at
t + 2. In a draft, the head's own output stands in for a state of the target that is not known yet. In training, the
head also runs on its own outputs ("training-time test" in EAGLE-3): each token of an answer is the root of a chain
with the answer's tokens and the head's own states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from specrace.heads.modules.batch import Batch
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.layers import Attention, GatedMLP, RMSNorm, attend


class _Layer(nn.Module):
    """The parts of a decoder layer; `_Chains.guesses` runs them over the context, and then along the chains."""

    def __init__(self, config: HeadConfig, width: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, width)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """The layer's output from its residual and what its rows attended to."""
        hidden = residual + self.self_attn.o_proj(mixed)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class _Layer3(_Layer):
    """EAGLE-3's layer: it reads embedding and state side by side, each normalised."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config, 2 * config.hidden_size)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class _Chains(nn.Module, ABC):
    """What both versions share: from every token of the answers, a chain of guesses."""

    decoder: _Layer

    @abstractmethod
    def enter(self, states: Tensor) -> Tensor:
        """Turn the target's states [B, N, levels, d] into states like those that the head puts out, [B, N, d]."""

    @abstractmethod
    def inputs(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The residual [B, N, d] and the input of the attention, of pairs (state, embedding of the next token)."""

    def guesses(self, batch: Batch, embeddings: Tensor, depths: int) -> list[Tensor]:
        """For each depth the outputs [B, A - depth + 1, d] that guess `batch.guessed(depth)`; A: the longest answer.

        `embeddings` [B, T, d]: of the batch's tokens. A pair has the rotary position of its state. Depths are counted
        from 1 in the shapes, and from 0 in the loop below.
        """
        # The first token of an answer, in column `width`, is guessed from the pair two columns before it.
        attention, start = self.decoder.self_attn, batch.width - 2
        positions, is_pair = batch.positions[:, :-2], batch.is_token[:, :-2]
        hidden = self.enter(batch.states[:, :-1])
        residual, entering = self.inputs(embeddings[:, 1:-1], hidden)
        context = attention.keys_values(entering, positions)
        columns = torch.arange(positions.shape[1], device=positions.device)
        outputs, drafts = list[Tensor](), list[tuple[Tensor, Tensor]]()
        for depth in range(depths):
            first = start + depth
            if depth:
                # The output for position t - 1 stands in for the state at t.
                residual, entering = self.inputs(embeddings[:, first + 1 : -1], outputs[-1][:, :-1])
                drafts.append(attention.keys_values(entering, positions[:, first:]))
            else:
                residual, entering = residual[:, first:], entering[:, first:]
            # A row at t of this depth has seen the target's states up to t - depth.
            last_seen = columns[first:, None] - depth
            # Rows of padding see one column, because a softmax over none would give NaN.
            mask = (columns <= last_seen) & (is_pair[:, None] | (columns == last_seen))
            queries = attention.queries(entering, positions[:, first:])
            outputs.append(self.decoder.finish(residual, attend(queries, context, mask, drafts)))
        return outputs


class Eagle(_Chains):
    """EAGLE-1 and 2: its output is the target's next last-level state, so the target's output matrix reads it."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList([_Layer(config, config.hidden_size)])

    @property
    def decoder(self) -> _Layer:  # type: ignore[override]
        """The only layer."""
        layer = self.layers[0]
        assert isinstance(layer, _Layer)
        return layer

    def enter(self, states: Tensor) -> Tensor:
        """The last level as it is."""
        return states[:, :, -1]

    def inputs(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Both are the projected pair; there is no norm before the attention."""
        entering = self.fc(torch.cat([embeddings, hidden], -1))
        return entering, entering

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Logits [..., Vd] of outputs [..., d]; `rows` [Vd, d]: the target's output matrix for the shortlist."""
        return functional.linear(outputs, rows)


class Eagle3(_Chains):
    """EAGLE-3: it mixes several levels, feeds back its own state, and has an output matrix of its own."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.fc = nn.Linear(config.num_levels * size, size, bias=False)
        self.midlayer = _Layer3(config)
        self.norm = RMSNorm(size, config.rms_norm_eps)
        self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)

    @property
    def decoder(self) -> _Layer:  # type: ignore[override]
        """The only layer."""
        return self.midlayer

    def enter(self, states: Tensor) -> Tensor:
        """All levels but the last, which the target's output matrix reads, side by side and projected."""
        mixed: Tensor = self.fc(states[:, :, :-1].flatten(2))
        return mixed

    def inputs(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The state is the residual; the attention reads embedding and state, normalised."""
        layer = self.midlayer
        return hidden, torch.cat([layer.input_layernorm(embeddings), layer.hidden_norm(hidden)], -1)

    def logits(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Logits [..., Vd] of outputs [..., d]; the target's `rows` are not used."""
        scores: Tensor = self.lm_head(self.norm(outputs))
        return scores
