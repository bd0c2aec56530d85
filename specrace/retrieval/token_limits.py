"""How many tokens a passage may have: what the embedder reads, and a share of the target's context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specrace.retrieval.embedder import Embedder, SentenceEmbedder, encodable

# The share of the target's context that a passage may fill; the question, the template and the answer need the rest.
PASSAGE_SHARE = 0.75


@dataclass(frozen=True)
class TokenLimit:
    """The maximum number of tokens of a passage and its title together; `count` returns the number in each text."""

    count: Callable[[Sequence[str]], Sequence[int]]
    max_tokens: int


def token_limits(embedder: Embedder, tokenizer: Any, max_context: int) -> list[TokenLimit]:
    """The limits of the embedder, and of a target with this tokenizer and a context of `max_context` tokens."""

    def count(texts: Sequence[str]) -> list[int]:
        plain = [encodable(text) for text in texts]
        return [len(ids) for ids in tokenizer(plain, add_special_tokens=False, verbose=False)["input_ids"]]

    limits = [TokenLimit(count, int(PASSAGE_SHARE * max_context))]
    if isinstance(embedder, SentenceEmbedder):
        limits.append(TokenLimit(embedder.count_weighted_tokens, embedder.max_text_tokens))
    return limits
