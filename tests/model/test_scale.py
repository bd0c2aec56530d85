"""Contexts of 1k to 32k tokens: a step's memory and work grow no faster than the cache that the step reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.model.forward.kv import KVStore, Prefix
from specrace.model.session import ModelSession
from specrace.model.target import Target
from tests.models import tiny_target

CONTEXTS = (1024, 8192, 32768)
ROOM = 64
# A tree of 17 nodes: their tokens, then the parent of each.
TREE = TokenTree((3, *range(4, 20)), (-1, 0, 0, 1, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12))


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target("llama", max_position_embeddings=40_000)


def session_after(target: Target, context: int) -> ModelSession:
    """A session after `context` tokens with random keys and values, so that no prefill is needed."""
    generator = torch.Generator().manual_seed(0)
    store = KVStore(target.num_layers, context)
    # Layers, keys and values, batch, heads, columns, numbers in a head.
    store.blocks = [torch.randn((target.num_layers, 2, 1, 2, context, 8), generator=generator)]
    store.length = context
    return target.session(Prefix(store, 0.0), ROOM, SamplingParams())


class ElementCounter(TorchDispatchMode):
    """Counts the elements of tensors that torch's operations return: a measure of work independent of the machine."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        self.count += sum(leaf.numel() for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
        return output


def test_a_steps_work_grows_linearly_with_the_context(target: Target) -> None:
    """A cached token adds as much work to a step after 1k tokens as after 32k."""
    counts = []
    for context in CONTEXTS:
        session = session_after(target, context)
        session.score(TREE)
        with ElementCounter() as counter:
            session.score(TREE)
        counts.append(counter.count)
    # The slope is the work for one more cached token.
    slopes = [(counts[n + 1] - counts[n]) / (CONTEXTS[n + 1] - CONTEXTS[n]) for n in (0, 1)]
    assert slopes[0] == slopes[1] > len(TREE) and counts[2] < 32 * counts[0]


def test_a_step_needs_little_memory_besides_the_store(target: Target) -> None:
    for context in CONTEXTS:
        session = session_after(target, context)
        data = session.store.data
        assert data is not None
        assert data.numel() * data.element_size() == target.roofline.token_bytes * (context + ROOM)
        target.reset_peak_memory()
        before = target.peak_memory()
        session.score(TREE)
        session.keep((0, 1, 3))
        after = target.peak_memory()
        if before is None or after is None:
            pytest.skip("this system does not report peak memory")
        # 16 float32 arrays of [rows, columns], for masks and for a layer's keys and values repeated over query heads,
        # and 32 MiB of slack.
        assert after - before < 16 * 4 * len(TREE) * (context + ROOM) + (32 << 20)


def test_a_tree_after_32k_tokens_is_scored_like_its_paths(target: Target) -> None:
    session = session_after(target, CONTEXTS[-1])
    logits = target.logits(session.store, TREE)
    for node in (5, 9, 16):
        path = TREE.path_to(node)
        chain = TokenTree.chain(3, [TREE.tokens[ancestor] for ancestor in path[1:]])
        torch.testing.assert_close(target.logits(session.store, chain)[-1], logits[node], rtol=1e-4, atol=1e-3)
