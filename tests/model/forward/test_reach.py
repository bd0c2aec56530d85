"""Models with limited or unusual attention: a node of a tree has the logits of its path decoded alone."""

from __future__ import annotations

import inspect
import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from specrace.core.errors import InputError
from specrace.core.events import Finished
from specrace.core.tree import TokenTree
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.model.capture import capture_replay
from specrace.model.draft_check import check_trees
from specrace.model.forward.reach import ALL_LAYERS, EVERYTHING, Reach, layer_reaches
from specrace.model.pretrained import supported_attention
from specrace.model.target import Target
from tests.measure.tiny_configs import tiny_config
from tests.models import tiny_model
from tests.parts import random_tree

# How many tokens a layer with a limited reach sees, itself included; the texts are longer.
WINDOW = 6
# In this order: windows in all layers, windows in some layers, windows with sinks, windows with capped scores, chunks,
# latent attention, heads of several widths, two ways to add biases by position, and learned positions.
KINDS = (
    "mistral", "gemma3_text", "gpt_oss", "gemma2", "llama4_text", "deepseek_v3", "gemma4_text", "bloom", "mpt", "opt",
)  # fmt: skip


def make_target(kind: str) -> Target:
    # Llama 4 scales queries by a factor that changes every `floor_scale` positions.
    names = ("sliding_window", "attention_chunk_size", "floor_scale")
    lengths = {name: WINDOW for name in names if getattr(tiny_config(kind), name, None)}
    config = tiny_config(kind, **lengths)
    torch.manual_seed(0)
    attention = supported_attention(config, "sdpa")
    return Target(AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval(), name=kind)


def random_tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(2, 30) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_node_scores_as_its_path_beyond_the_window(kind: str) -> None:
    target, rng = make_target(kind), random.Random(kind)
    check_trees(target)
    text = random_tokens(rng, 20)
    store = target.prefill(text).store.clone(100)
    for size in (0, 12, 9):
        tree = random_tree(rng, text[-1], size)
        logits = target.logits(store, tree)
        for node in range(len(tree)):
            path = [tree.tokens[ancestor] for ancestor in tree.path_to(node)[1:]]
            expected = target.plain_logits([*text, *path])[-1]
            torch.testing.assert_close(logits[node], expected, rtol=1e-3, atol=1e-3)
        path = tree.path_to(rng.randrange(len(tree)))
        store.keep(path)
        text += [tree.tokens[node] for node in path[1:]] + random_tokens(rng, 1)


@pytest.mark.parametrize("kind", ["bloom", "mpt"])
def test_biases_by_position_do_not_change_a_plain_forward(kind: str) -> None:
    """A target wraps the method that computes the biases; a second target on the same model does not wrap it again."""
    config = tiny_config(kind)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tokens = random_tokens(random.Random(kind), 12)
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([tokens])).logits[0]
    targets = [Target(model), Target(model)]
    names = ("build_alibi_tensor", "build_mpt_alibi_tensor")
    biases = [getattr(model.transformer, name) for name in names if hasattr(model.transformer, name)]
    assert len(biases) == 1 and inspect.ismethod(biases[0]._original)
    for target in targets:
        check_trees(target)
        torch.testing.assert_close(target.plain_logits(tokens), expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["gemma3_text", "llama4_text", "mpt"])
def test_a_captured_forward_sees_as_far_as_the_eager_one(kind: str) -> None:
    """The text here is longer than the text with which the forward was traced."""
    target, rng = make_target(kind), random.Random(kind)
    text = random_tokens(rng, 25)
    tree = random_tree(rng, text[-1], 10)
    expected = target.logits(target.prefill(text).store.clone(60), tree)
    capture_replay(target, packed=False)
    assert target.replay is not None and "fused" not in target.replay.name
    logits = target.logits(target.prefill(text).store.clone(60), tree)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_the_fused_decoder_refuses_windows() -> None:
    target = Target(tiny_model("mistral", sliding_window=WINDOW))
    capture_replay(target)
    assert target.replay is not None and "fused" not in target.replay.name


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_lanes_print_vanillas_text_beyond_the_window(temperature: float) -> None:
    target, prompt = make_target("gemma3_text"), random_tokens(random.Random(3), 9) * 3
    spec = RaceSpec(("lookahead", "trie", "fusion"), max_new_tokens=24, temperature=temperature, num_draft=8)
    events = list(race(target, prompt, spec))
    assert isinstance(events[-1], Finished) and all(lane.identical for lane in events[-1].lanes)


@pytest.mark.parametrize("wrong_reach", [EVERYTHING, Reach(window=WINDOW - 1), Reach(window=WINDOW + 1)])
def test_check_trees_refuses_masks_that_are_not_the_models(monkeypatch: pytest.MonkeyPatch, wrong_reach: Reach) -> None:
    """The check shortens windows to three tokens; a wrong reach is then also one token too short or too long."""
    target = make_target("mistral")
    offset = wrong_reach.window - WINDOW

    def reaches(config: Any) -> dict[str, Reach]:
        return {ALL_LAYERS: Reach(config.sliding_window + offset) if wrong_reach.window else EVERYTHING}

    monkeypatch.setattr("specrace.model.scorer.layer_reaches", reaches)
    with pytest.raises(InputError, match="computes other logits for a tree"):
        check_trees(target)
    assert target.config.sliding_window == WINDOW


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", {ALL_LAYERS: EVERYTHING}),
        ("qwen2", {ALL_LAYERS: EVERYTHING}),
        ("mistral", {ALL_LAYERS: Reach(window=32)}),
        ("gemma3_text", {"full_attention": EVERYTHING, "sliding_attention": Reach(window=32)}),
        ("llama4_text", {"full_attention": EVERYTHING, "chunked_attention": Reach(chunk=32)}),
    ],
)
def test_reaches_come_from_the_config(kind: str, expected: dict[str, Reach]) -> None:
    assert layer_reaches(tiny_config(kind)) == expected


def test_chunks_are_counted_by_position() -> None:
    # True is a column that position 4 does not see.
    columns = torch.arange(8)
    assert Reach(chunk=3).hides(torch.tensor([[4]]), columns)[0].tolist() == [True] * 3 + [False] * 3 + [True] * 2
    assert Reach(window=3).hides(torch.tensor([[4]]), columns)[0].tolist() == [True] * 2 + [False] * 6


@pytest.mark.parametrize(("kind", "expected"), [("llama", "sdpa"), ("gemma2", "eager"), ("gptj", "eager")])
def test_a_model_without_fused_attention_gets_the_plain_one(kind: str, expected: str) -> None:
    assert supported_attention(tiny_config(kind), "sdpa") == expected
    assert supported_attention(tiny_config(kind), "eager") == "eager"


def test_token_bytes_count_keys_and_values_of_different_shapes() -> None:
    """Latent attention keeps a compressed token of 16 float32 and a rotated key of 8, for all heads together."""
    target = make_target("deepseek_v3")
    assert target.roofline.token_bytes == target.num_layers * (16 + 8) * 4


def test_a_layer_keeps_its_shape_once_tokens_are_committed() -> None:
    target = make_target("deepseek_v3")
    store = target.prefill([3, 4, 5]).store.clone(8)
    # Keys and values differ in shape, so each layer has a block for each of the two.
    assert store.data is None and len(store.blocks) == 2 * target.num_layers
    with pytest.raises(ValueError, match="keep their shape"):
        store.write(0, torch.zeros(1, 1, 1, 5), torch.zeros(1, 1, 1, 5))
    target.logits(store, TokenTree.chain(7))
