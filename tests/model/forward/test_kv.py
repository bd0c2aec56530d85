"""The KV store: keeping a path equals decoding it, clones are independent, and room is checked.

A tree's keys and values are written to the columns after the committed ones, or to given ones (slots). `keep` commits
the nodes of a path; `clone(9)` has room for 9 tokens. `TokenTree.chain(5, [6])` is the pending token 5 and a draft, 6.
"""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import torch

from specrace.core.tree import TokenTree
from specrace.drafters import METHODS
from specrace.model.forward.kv import KVStore
from specrace.model.target import Target
from tests.model.two_devices import FIRST, SECOND, TwoDevices
from tests.models import ARCHITECTURES, tiny_target
from tests.parts import VOCAB, inputs, random_prompt, random_tree, run_lane


def plain_logits(target: Target, tokens: list[int]) -> torch.Tensor:
    """Logits after every token, by one forward without a cache."""
    with torch.inference_mode():
        logits: torch.Tensor = target.model(input_ids=torch.tensor([tokens])).logits[0]
    return logits


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_keeping_random_paths_equals_sequential_decoding(name: str) -> None:
    """At every step, each node's logits equal those of its path decoded without a cache."""
    target = tiny_target(name)
    for seed in range(3):
        rng = random.Random(seed)
        text = list(random_prompt(rng))
        store = target.prefill(text).store.clone(200)
        for _ in range(6):
            tree = random_tree(rng, text[-1], rng.randint(0, 12))
            logits = target.logits(store, tree)
            for node in range(len(tree)):
                path = [tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]]
                torch.testing.assert_close(logits[node], plain_logits(target, text + path)[-1], rtol=1e-4, atol=1e-3)
            kept_path = tree.path_to(rng.randrange(len(tree)))
            store.keep(kept_path)
            text += [tree.tokens[node] for node in kept_path[1:]] + [rng.randrange(VOCAB)]
            assert store.length == len(text) - 1


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt-neox", "qwen3"])
def test_trees_are_masked_correctly_in_sdpa_and_eager_attention(name: str, attention: str) -> None:
    """Eager attention would add a bool mask as 0 and 1, so nodes would see other branches."""
    target = tiny_target(name, attention=attention)
    assert target.config._attn_implementation == attention
    tree = TokenTree((5, 6, 7, 8, 9, 6), (-1, 0, 0, 1, 2, 2))
    logits = target.logits(target.prefill([2, 3, 4, 5]).store.clone(20), tree)
    for node in range(len(tree)):
        path = [tree.tokens[ancestor] for ancestor in tree.path_to(node)]
        torch.testing.assert_close(logits[node], plain_logits(target, [2, 3, 4, *path])[-1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_eager_and_sdpa_attention_print_the_same_tokens(name: str) -> None:
    prompt = (4, 5, 6, 4, 5, 6, 4, 5)
    outputs = []
    for attention in ("sdpa", "eager"):
        target = tiny_target(name, attention=attention)
        drafter = METHODS["trie"].build(inputs(prompt))
        outputs.append(run_lane(target, target.prefill(prompt), prompt, drafter, eos_ids=frozenset()).tokens)
    assert outputs[0] == outputs[1] and len(outputs[0]) == 16


def test_clones_are_independent() -> None:
    target = tiny_target("llama")
    prefix = target.prefill([2, 3, 4, 5]).store
    assert prefix.data is not None
    before = prefix.data.clone()
    first, second = prefix.clone(10), prefix.clone(12)
    tree = TokenTree.chain(5, [6, 7])
    expected = target.logits(second, tree)
    target.logits(first, TokenTree.chain(5, [9, 9, 9]))
    first.keep((0, 1, 2, 3))
    assert (first.length, second.length, prefix.length) == (7, 3, 3)
    assert torch.equal(target.logits(second, tree), expected)
    assert torch.equal(prefix.data, before)
    assert first.data is not None and second.data is not None and first.data.data_ptr() != second.data.data_ptr()


def test_a_dropped_store_is_freed_immediately() -> None:
    """The garbage collector, which may run much later, is not needed."""
    target = tiny_target("llama")
    gc.disable()
    try:
        store = target.prefill([3, 4, 5]).store
        clone = store.clone(9)
        target.logits(clone, TokenTree.chain(5, [6]))
        references = weakref.ref(store), weakref.ref(clone)
        del store, clone
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_a_write_to_a_full_store_is_refused() -> None:
    target = tiny_target("llama")
    store = target.prefill([2, 3, 4]).store.clone(4)
    target.logits(store, TokenTree.chain(4, [5]))
    with pytest.raises(ValueError, match="holds 4 tokens, 5 are needed"):
        target.logits(store, TokenTree.chain(4, [5, 6]))
    with pytest.raises(ValueError, match="do not fit"):
        store.clone(1)


def _numbered_store(capacity: int = 8, length: int = 2, written: int = 4) -> KVStore:
    """A store of two layers: in column c, the keys are c and the values c + 100."""
    store = KVStore(2, capacity)
    store.length = length
    columns = torch.arange(length, length + written, dtype=torch.float32)
    block = columns[None, None, :, None].expand(1, 3, written, 5)
    for layer in range(2):
        keys, values = store.write(layer, block, block + 100)
        assert keys.shape == values.shape == (1, 3, length + written, 5)
    return store


@pytest.mark.parametrize("path", [(0,), (0, 1), (0, 1, 2, 3), (0, 2), (0, 3), (0, 1, 3), (0, 2, 3)])
def test_keep_moves_the_path_to_the_columns_after_the_committed_tokens(path: tuple[int, ...]) -> None:
    store = _numbered_store()
    store.keep(path)
    assert store.length == 2 + len(path)
    assert store.data is not None
    columns = store.data[:, :, 0, 0, 2 : store.length, 0]
    expected = torch.tensor([2.0 + node for node in path])
    assert torch.equal(columns, torch.stack([expected, expected + 100]).expand(2, 2, -1))


def test_layers_of_another_shape_are_refused() -> None:
    store = _numbered_store()
    with pytest.raises(ValueError, match="keep their shape"):
        store.write(1, torch.zeros(1, 2, 1, 5), torch.zeros(1, 2, 1, 5))
    with pytest.raises(ValueError, match="keep their shape"):
        store.write(1, torch.zeros(1, 3, 1, 5), torch.zeros(1, 3, 1, 4))
    with pytest.raises(ValueError, match="keep their shape"):
        store.write(1, torch.zeros(1, 3, 1, 7), torch.zeros(1, 3, 1, 7))


def _numbered_layers(store: KVStore) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Write three columns to three layers of different shapes, and return what the writes read back.

    The number of heads, the width of the keys and that of the values differ; a number is 100 * layer + column, and
    50 more in values.
    """
    written = []
    for layer, (heads, key_width, value_width) in enumerate([(2, 4, 1), (1, 5, 5), (5, 2, 6)]):
        columns = 100.0 * layer + torch.arange(3, dtype=torch.float64)[None, None, :, None]
        parts = columns.expand(1, heads, 3, key_width), (columns + 50).expand(1, heads, 3, value_width)
        keys, values = store.write(layer, *parts)
        assert torch.equal(keys, parts[0]) and torch.equal(values, parts[1]) and keys.dtype == torch.float64
        written.append(parts)
    return written


def test_layers_of_different_shapes_have_their_own_storage() -> None:
    store = KVStore(3, 4)
    assert store.token_bytes == 0
    written = _numbered_layers(store)
    # Keys and values of each layer.
    numbers = [(2, 4), (2, 1), (1, 5), (1, 5), (5, 2), (5, 6)]
    assert [tuple(block.shape) for block in store.blocks] == [(1, 1, 1, heads, 4, width) for heads, width in numbers]
    assert store.token_bytes == 8 * sum(heads * width for heads, width in numbers)
    store.keep((0, 2))
    copy = store.clone(6)
    assert copy.token_bytes == store.token_bytes and copy.length == 2
    for layer, (keys, values) in enumerate(written):
        read_keys, read_values = copy.write(layer, keys[:, :, :1], values[:, :, :1])
        assert torch.equal(read_keys, keys[:, :, [0, 2, 0]]) and torch.equal(read_values, values[:, :, [0, 2, 0]])


def test_a_layer_that_differs_from_the_first_leaves_the_others_where_they_are() -> None:
    store = KVStore(2, 1)
    store.write(0, _block(7), _block(8))
    store.write(1, torch.full((1, 2, 1, 3), 9.0), torch.full((1, 2, 1, 3), 10.0))
    # Four bytes a number: a key and a value in layer 0; keys and values of two heads, three numbers each, in layer 1.
    assert store.token_bytes == 4 * (2 + 2 * 2 * 3)
    assert [block.flatten().tolist() for block in store.blocks[1:]] == [[9.0] * 6, [10.0] * 6]
    assert store.blocks[0][0].flatten().tolist() == [7, 8]


def test_a_layers_own_storage_is_on_its_device() -> None:
    keys, values = torch.zeros(1, 2, 3, 4, device="meta"), torch.zeros(1, 2, 3, 5, device="meta")
    read_keys, read_values = KVStore(1, 4).write(0, keys, values)
    assert (read_keys.device, read_values.device) == (keys.device, values.device)
    assert (read_keys.shape, read_values.shape) == (keys.shape, values.shape)


def test_a_prompt_of_one_token_has_an_empty_prefix() -> None:
    target = tiny_target("gpt2")
    prefix = target.prefill([7])
    assert prefix.store.length == 0 and prefix.store.data is None
    logits = target.logits(prefix.store.clone(3), TokenTree.chain(7, [8]))
    torch.testing.assert_close(logits, plain_logits(target, [7, 8]), rtol=1e-4, atol=1e-3)


def _block(*columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Keys or values of N tokens, with one head and one number per token, [1, 1, N, 1]."""
    return torch.tensor(columns, dtype=dtype)[None, None, :, None]


def test_a_store_over_existing_storage_writes_to_that_storage() -> None:
    data = torch.zeros(3, 2, 1, 4, 8, 5)
    store = KVStore.over(data)
    assert (store.num_layers, store.capacity, store.length) == (3, 8, 0)
    assert store.data is data
    assert len(store.cache.layers) == 3
    keys = torch.ones(1, 4, 2, 5)
    store.write(2, keys, 2 * keys)
    assert data[2, 0, 0, :, :2].eq(1).all() and data[2, 1, 0, :, :2].eq(2).all()
    assert data.sum() == 3 * keys.sum()


def test_a_write_to_slots_reads_back_the_first_columns() -> None:
    store = KVStore(1, 6)
    store.write(0, _block(1, 2, 3), _block(1, 2, 3))
    store.commit(2)
    assert store.end_of(3) == 5
    store.set_slots(torch.tensor([4, 2]), 5)
    # With slots, the end is the one that was set, for any number of rows.
    assert store.end_of(3) == 5 and store.end_of(9) == 5
    keys, values = store.write(0, _block(8, 9), _block(18, 19))
    assert keys.flatten().tolist() == [1, 2, 9, 0, 8] and values.flatten().tolist() == [1, 2, 19, 0, 18]
    store.set_slots(torch.tensor([0]))
    assert store.write(0, _block(7), _block(7))[0].shape == (1, 1, 0, 1)
    store.set_slots(None)
    assert store.write(0, _block(5), _block(5))[0].flatten().tolist() == [7, 2, 5]


def test_the_cache_reports_lengths_and_mask_sizes_to_the_model() -> None:
    store = KVStore(1, 6)
    store.write(0, _block(1, 2, 3), _block(1, 2, 3))
    store.commit(1)
    store.commit(2)
    layer = store.cache.layers[0]
    assert (layer.get_seq_length(), layer.get_max_length(), layer.get_max_cache_shape()) == (3, 6, 6)
    assert layer.get_mask_sizes(2) == (5, 0)
    store.set_slots(torch.tensor([4]), 5)
    assert layer.get_mask_sizes(1) == (5, 0)
    assert layer.is_initialized is True


def test_rewinding_drops_the_last_tokens_and_never_adds_any() -> None:
    store = _numbered_store(length=2, written=4)
    store.commit(4)
    store.rewind(9)
    assert store.length == 6
    store.rewind(3)
    assert store.length == 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_the_storage_has_the_models_dtype(dtype: torch.dtype) -> None:
    store = KVStore(1, 4)
    keys, values = store.write(0, _block(1, dtype=dtype), _block(1, dtype=dtype))
    assert store.data is not None and store.data.dtype == keys.dtype == values.dtype == dtype


def test_a_clone_may_be_as_small_as_the_committed_part() -> None:
    store = KVStore(1, 6)
    store.write(0, _block(1, 2, 3), _block(4, 5, 6))
    store.commit(3)
    copy = store.clone(3)
    assert (copy.capacity, copy.length) == (3, 3)
    assert copy.data is not None and copy.data.flatten().tolist() == [1, 2, 3, 4, 5, 6]


def test_a_store_can_be_restored_to_an_empty_one() -> None:
    store = _numbered_store()
    data = store.data
    store.restore(KVStore(2, 8))
    assert store.length == 0 and store.data is data
    store.restore(_numbered_store(length=1))
    assert store.length == 1 and store.data is data


def test_each_layer_is_kept_on_its_own_device() -> None:
    with TwoDevices():
        store = KVStore(3, 6, [FIRST, SECOND, SECOND])
        blocks = [_block(1, 2, 3).to(device) for device in (FIRST, SECOND, SECOND)]
        for layer, block in enumerate(blocks):
            store.write(layer, block, block)
        store.keep((0, 2))
        copy = store.clone(8)
        assert copy.devices == store.devices == (FIRST, SECOND, SECOND)
        copy.set_slots(torch.tensor([3, 2]), 4)
        for layer, block in enumerate(blocks):
            keys, _ = copy.write(layer, block[:, :, :2], block[:, :, :2])
            assert keys.device == block.device and keys.flatten().tolist() == [1, 3, 2, 1]
        copy.set_slots(None)
        assert [block.device for block in copy.blocks] == [FIRST, SECOND]
        assert copy.write(1, blocks[1], blocks[1])[1].flatten().tolist() == [1, 3, 1, 2, 3]
