"""Contexts of 1k to 32k tokens: a step's memory and time grow with what it must read, and no faster."""

from __future__ import annotations

import time

import pytest
import torch

from specrace.kv import KVStore
from specrace.rule import SamplingRule
from specrace.target import Prefix, Session, Target
from specrace.tree import TokenTree
from tests.core.parts import tiny_target

CONTEXTS = (1024, 8192, 32768)
ROOM = 64
TREE = TokenTree((3, *range(4, 20)), (-1, 0, 0, 1, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12))


@pytest.fixture(scope="module")
def target() -> Target:
    return tiny_target("llama", max_position_embeddings=40_000)


def session_behind(target: Target, context: int) -> Session:
    """A session behind so many tokens, whose keys and values are random: prefill's cost is the model's own."""
    generator = torch.Generator().manual_seed(0)
    store = KVStore(target.num_layers, context)
    store.blocks = [torch.randn((target.num_layers, 2, 1, 2, context, 8), generator=generator)]
    store.length = context
    return target.session(Prefix(store, 0.0), ROOM, SamplingRule())


def test_a_steps_time_grows_no_faster_than_the_context(target: Target) -> None:
    sessions = {context: session_behind(target, context) for context in CONTEXTS}
    best = dict.fromkeys(CONTEXTS, float("inf"))
    # In turn, the best of many, and processor time only: the machine may be busy.
    for _ in range(12):
        for context, session in sessions.items():
            began = time.process_time()
            session.score(TREE)
            best[context] = min(best[context], time.process_time() - began)
    assert best[32768] < 32 * best[1024]


def test_the_store_is_the_context_and_a_step_takes_little_beside_it(target: Target) -> None:
    for context in CONTEXTS:
        session = session_behind(target, context)
        data = session.store.data
        assert data is not None
        assert data.numel() * data.element_size() == target.roofline.token_bytes * (context + ROOM)
        target.reset_peak_memory()
        before = target.peak_memory()
        session.score(TREE)
        session.keep((0, 1, 3))
        after = target.peak_memory()
        if before is None or after is None:
            pytest.skip("this system tells no peak")
        # A mask and its parts, [rows, columns], and grouped keys and values repeated for one layer.
        assert after - before < 16 * 4 * len(TREE) * (context + ROOM) + (32 << 20)


def test_at_32k_a_tree_is_scored_as_its_paths_are(target: Target) -> None:
    session = session_behind(target, CONTEXTS[-1])
    logits = target.logits(session.store, TREE)
    for node in (5, 9, 16):
        path = TREE.path_to(node)
        chain = TokenTree.chain(3, [TREE.tokens[each] for each in path[1:]])
        torch.testing.assert_close(target.logits(session.store, chain)[-1], logits[node], rtol=1e-4, atol=1e-3)
