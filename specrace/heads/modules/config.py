"""The sizes of a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HeadConfig:
    """The sizes of a head's decoder layer, as in Llama's config, and the number of its heads or levels.

    `draft_vocab_size`: how many tokens the head can guess. `num_heads`: how many heads Medusa and Hydra have, and how
    many tokens a block head guesses. `num_levels`: how many levels of the target (hidden states that enter its layers)
    EAGLE-3 or a block head reads.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    num_heads: int = 4
    num_levels: int = 3

    @classmethod
    def fitting(cls, config: Any, draft_vocab_size: int, num_levels: int = 0, num_heads: int = 4) -> HeadConfig:
        """The sizes of a head whose layer is like one of a target's; `config`: the target's.

        The defaults are for kinds of heads that have no such number and do not read it.
        """
        heads = config.num_attention_heads
        rotation = getattr(config, "rope_parameters", None) or {}
        return cls(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_attention_heads=heads,
            num_key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocab_size=config.vocab_size,
            draft_vocab_size=draft_vocab_size,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=float(rotation.get("rope_theta", 10_000.0)),
            num_heads=num_heads,
            num_levels=num_levels,
        )
