"""Modules of heads: training computes what drafting step by step computes, one chain at a time.

A conversation is (ids, start, states): its tokens, the index at which the answer starts, and the hidden states. In
`guesses(...)[depth][row, place]`, `place` counts an answer's tokens from 0.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from specrace.heads.modules.batch import Batch, collate
from specrace.heads.modules.block import Block
from specrace.heads.modules.config import HeadConfig
from specrace.heads.modules.eagle import Eagle, Eagle3
from specrace.heads.modules.layers import attend
from specrace.heads.modules.medusa import Medusa

SIZE, VOCAB, LEVELS, DEPTHS = 16, 50, 4, 3
CONFIG = HeadConfig(
    hidden_size=SIZE,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    vocab_size=VOCAB,
    draft_vocab_size=20,
)


@pytest.fixture(scope="module")
def embeddings() -> Tensor:
    return torch.randn(VOCAB, SIZE, generator=torch.Generator().manual_seed(1))


def random_batch(levels: int) -> tuple[Batch, list[tuple[Tensor, int, Tensor]]]:
    """Three conversations with prompts and answers of different lengths."""
    generator = torch.Generator().manual_seed(2)
    conversations = [
        (
            torch.randint(0, VOCAB, (prompt + answer,), generator=generator),
            prompt,
            torch.randn(prompt + answer - 1, levels, SIZE, generator=generator),
        )
        for prompt, answer in ((2, 6), (5, 3), (4, 5))
    ]
    return collate(conversations), conversations


def initialized(head: Any) -> Any:
    """The head with random weights, its norms included."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return head


def draft_chain(head: Eagle | Eagle3, ids: Tensor, states: Tensor, root: int, embeddings: Tensor) -> list[Tensor]:
    """The outputs of a draft chain whose root is token number `root`, computed without a cache, depth by depth.

    `ids` [T] and `states` [T-1, levels, d] are those of one conversation, whose next tokens are the draft.
    """
    attention = head.decoder.self_attn
    hidden = list(head.enter(states[None, :root])[0])
    outputs = list[Tensor]()
    for depth in range(DEPTHS):
        if root + depth >= len(ids):
            break
        if depth:
            hidden.append(outputs[-1])
        tokens = embeddings[ids[1 : len(hidden) + 1]]
        residual, entering = head.inputs(tokens[None], torch.stack(hidden)[None])
        positions = torch.arange(len(hidden))[None]
        context = attention.keys_values(entering, positions)
        queries = attention.queries(entering[:, -1:], positions[:, -1:])
        mask = torch.ones(1, 1, len(hidden), dtype=torch.bool)
        outputs.append(head.decoder.finish(residual[:, -1:], attend(queries, context, mask, []))[0, 0])
    return outputs


@pytest.mark.parametrize(("kind", "levels"), [(Eagle, 1), (Eagle3, LEVELS)])
def test_training_computes_what_drafting_computes(
    kind: type[Eagle] | type[Eagle3], levels: int, embeddings: Tensor
) -> None:
    head = initialized(kind(CONFIG))
    assert not isinstance(head, Medusa)
    batch, conversations = random_batch(levels)
    trained = head.guesses(batch, embeddings[batch.ids], DEPTHS)
    for row, (ids, start, states) in enumerate(conversations):
        for place in range(len(ids) - start):
            outputs = draft_chain(head, ids, states, start + place - 1, embeddings)
            for depth, output in enumerate(outputs):
                if place + depth < len(ids) - start:
                    torch.testing.assert_close(trained[depth][row, place], output, atol=1e-5, rtol=1e-4)


def test_medusa_guesses_further_tokens_from_one_state(embeddings: Tensor) -> None:
    head = initialized(Medusa(CONFIG))
    batch, conversations = random_batch(1)
    trained = head.guesses(batch, embeddings[batch.ids], 3)
    for row, (ids, start, states) in enumerate(conversations):
        for depth in range(3):
            for place in range(len(ids) - start - depth):
                # The chain's root is the token before `start + place`; its state is not known yet.
                state = states[start + place - 2, -1]
                linear = head[depth][0].linear  # type: ignore[index]
                expected = state + torch.nn.functional.silu(linear.weight @ state + linear.bias)
                torch.testing.assert_close(trained[depth][row, place], expected, atol=1e-5, rtol=1e-4)


def test_a_block_guesses_from_what_comes_before_its_pending_token(embeddings: Tensor) -> None:
    """Each block is recomputed in a batch of its own, from the states before its pending token."""
    head = initialized(Block(CONFIG))
    batch, conversations = random_batch(LEVELS)
    trained = head.guesses(batch, embeddings[batch.ids], 9)
    assert len(trained) == CONFIG.num_heads
    for row, (ids, start, states) in enumerate(conversations):
        # The block that guesses the token at `index` first.
        for index in range(start, len(ids)):
            alone = collate([(ids[: index + 1], index, states[:index])])
            outputs = head.guesses(alone, embeddings[alone.ids], CONFIG.num_heads)
            torch.testing.assert_close(trained[0][row, index - start], outputs[0][0, 0], atol=1e-5, rtol=1e-4)
            # The last block's later rows have no token to guess and are not returned, so three tokens are appended.
            padded = collate([(torch.cat([ids[: index + 1], ids[:3]]), index, torch.cat([states[:index], states[:3]]))])
            outputs = head.guesses(padded, embeddings[padded.ids], CONFIG.num_heads)
            for depth in range(1, min(CONFIG.num_heads, len(ids) - index)):
                expected = outputs[depth][0, 0]
                torch.testing.assert_close(trained[depth][row, index - start], expected, atol=1e-5, rtol=1e-4)


def test_a_new_medusa_passes_states_through(embeddings: Tensor) -> None:
    batch, _ = random_batch(1)
    outputs = Medusa(CONFIG).guesses(batch, embeddings[batch.ids], 2)
    assert torch.equal(outputs[1], batch.states[:, batch.width - 2 : -2, -1])


def test_guessed_tokens_and_states_belong_together() -> None:
    """The state from which a token was drawn is that of the token before it."""
    batch, conversations = random_batch(1)
    for row, (ids, start, states) in enumerate(conversations):
        for depth in (1, 2):
            count = len(ids) - start - depth + 1
            assert torch.equal(batch.guessed(depth)[row, :count], ids[start + depth - 1 :])
            assert batch.is_guessed(depth)[row].sum() == count
            assert torch.equal(batch.last_states(depth)[row, :count], states[start + depth - 2 :, -1])


def test_names_of_weights_are_those_of_the_published_layouts() -> None:
    eagle = {name.removesuffix(".weight") for name in Eagle(CONFIG).state_dict()}
    products = {f"self_attn.{part}_proj" for part in "qkvo"} | {f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    layer = products | {"post_attention_layernorm"}
    assert eagle == {"fc", "fc.bias"} | {f"layers.0.{name}" for name in layer}
    eagle3 = {name.removesuffix(".weight") for name in Eagle3(CONFIG).state_dict()}
    midlayer = {f"midlayer.{name}" for name in layer | {"input_layernorm", "hidden_norm"}}
    assert eagle3 == {"fc", "norm", "lm_head"} | midlayer
    block = {name.removesuffix(".weight") for name in Block(CONFIG).state_dict()}
    normed = {f"layers.0.{name}" for name in layer | {"input_layernorm", "self_attn.q_norm", "self_attn.k_norm"}}
    assert block == {"fc", "hidden_norm", "norm", "mask_embedding"} | normed
    assert set(Medusa(CONFIG).state_dict()) == {f"{n}.0.linear.{p}" for n in range(4) for p in ("weight", "bias")}
