"""Taps copy hidden states out of a forward in every way of running it, and the logits stay the same to the last bit.

Level i is the hidden state that enters layer i; a token's features are its states at the levels that a head asks for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from specrace.core.errors import InputError
from specrace.core.tree import TokenTree
from specrace.model.capture import capture_graphs, capture_replay
from specrace.model.forward.masked import MaskedForward, Masks
from specrace.model.forward.tapped import Levels, TappedForward, check_levels
from specrace.model.forward.tree_inputs import TreeTensors
from specrace.model.session import ModelSession
from specrace.model.target import Target
from specrace.model.transcript_target import ScriptedTarget
from tests.model.forward.test_graphs import FakeCapturer
from tests.model.two_devices import TwoDevices, spread_model
from tests.models import COMPILABLE, tiny_model
from tests.parts import VOCAB, random_prompt, random_tree

# All levels of a model of two layers, out of order, as a head may ask for them.
LEVELS = (2, 0, 1)


def _captured(name: str, **choices: Any) -> Target:
    target = Target(tiny_model(name, **COMPILABLE), name=name)
    capture_replay(target, **choices)
    assert target.replay is not None, target.eager_because
    return target


def _graphed(name: str) -> Target:
    target = Target(tiny_model(name), name=name)
    capture_graphs(target, FakeCapturer())
    assert target.graphs is not None
    return target


# How a target's forwards may run -> a function that makes such a target.
WAYS: dict[str, Callable[[], Target]] = {
    "eager": lambda: Target(tiny_model("llama"), name="llama"),
    "eager, learned positions": lambda: Target(tiny_model("gpt2"), name="gpt2"),
    "traced": partial(_captured, "gpt-neox", compiled=False, packed=False),
    "traced, packed": partial(_captured, "llama", compiled=False, packed=True, fused=False),
    "fused": partial(_captured, "qwen3", compiled=False, packed=False),
    "fused, packed": partial(_captured, "qwen2", compiled=False, packed=True),
    "compiled": partial(_captured, "llama", compiled=True),
    "compiled, read by the model": partial(_captured, "gemma3", compiled=True),
    "graphs": partial(_graphed, "llama"),
}


class Collector:
    """Keeps the features and tokens that a model session gives to a head."""

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.features: list[Tensor] = []
        self.tokens: list[int] = []

    def queue(self, features: Tensor, tokens: Sequence[int]) -> None:
        assert len(features) == len(tokens)
        self.features.append(features)
        self.tokens += tokens


def plain_features(target: Target, tokens: Sequence[int]) -> Tensor:
    """The features of a text by one plain forward of the model's own modules."""
    with torch.inference_mode():
        states = target.model(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states
    # The embeddings, the first layer's output, and the state after the last layer and the final norm.
    assert len(states) == 3
    return torch.cat([states[level][0] for level in LEVELS], dim=-1)


def _compare_steps(session: ModelSession, plain: ModelSession, text: list[int], seed: str) -> None:
    """Compare tapped with untapped logits over random trees, each with a random accepted path; `text` grows."""
    rng = random.Random(seed)
    for size in (0, 1, 6, 2, 0, 15):
        tree = random_tree(rng, text[-1], size)
        # Copied, because another forward may reuse the memory.
        logits = session.logits(tree).clone()
        assert torch.equal(logits, plain.logits(tree))
        path = tree.path_to(rng.randrange(len(tree)))
        session.keep(path)
        plain.keep(path)
        text += [tree.tokens[node] for node in path[1:]] + [rng.randrange(VOCAB)]


@pytest.mark.parametrize("way", WAYS)
def test_tapped_logits_are_bit_equal_and_features_are_the_hidden_states(way: str) -> None:
    """Over prompt and steps, the features are those of a plain forward over the whole text."""
    target = WAYS[way]()
    text = list(random_prompt(random.Random(way)))
    prefix, untapped = target.prefill(text, LEVELS), target.prefill(text)
    assert untapped.features is None and prefix.levels == LEVELS and prefix.features is not None
    for block, plain_block in zip(prefix.store.blocks, untapped.store.blocks, strict=True):
        assert torch.equal(block, plain_block)
    collector = Collector(LEVELS)
    session = target.session(prefix, 200, head_session=collector)
    _compare_steps(session, target.session(untapped, 200), text, way)
    features = torch.cat([prefix.features, *collector.features]).float()
    # The text's last token is the next root, which no forward has read.
    assert [*text[: len(prefix.features)], *collector.tokens] == text[:-1]
    torch.testing.assert_close(features, plain_features(target, text[:-1]), rtol=1e-3, atol=1e-3)


def test_features_of_layers_on_other_devices_arrive_on_the_first() -> None:
    with TwoDevices():
        target = Target(spread_model(tiny_model("llama")), name="spread")
        assert len(target.devices) == 2
        prefix = target.prefill([3, 4, 5], (0, 2))
        collector = Collector((0, 2))
        session = target.session(prefix, 20, head_session=collector)
        session.score(TokenTree.chain(5, [6]))
        session.keep((0, 1))
        assert prefix.features is not None
        assert prefix.features.device == collector.features[0].device == target.device


class RecordingReplay:
    """A target's replay that records its calls, and when another forward is made from it."""

    name, version, own_threads, keeps_float32 = "", "", False, False

    def __init__(self, target: Target) -> None:
        assert target.replay is not None
        self.replay, self.reader, self.calls = target.replay, target.replay.reader, list[str]()

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        self.calls.append("plain")
        return self.replay(tree, data)

    def tapped(self, levels: Levels) -> TappedForward:
        self.calls.append("made")
        return self.replay.tapped(levels)

    def masked(self, masks: Masks) -> MaskedForward:
        self.calls.append("made")
        return self.replay.masked(masks)


def test_without_a_tap_a_race_calls_the_same_forward() -> None:
    """A tapped session makes a forward of its own, once; an untapped session still calls the replay."""
    target = WAYS["fused"]()
    replay = target.replay = RecordingReplay(target)
    prefix = target.prefill([3, 4, 5], LEVELS)
    tapped, plain = target.session(prefix, 20, head_session=Collector(LEVELS)), target.session(prefix, 20)
    plain.score(TokenTree.chain(5))
    tapped.score(TokenTree.chain(5))
    tapped.score(TokenTree.chain(5))
    plain.score(TokenTree.chain(5))
    assert replay.calls == ["plain", "made", "plain"]


def test_a_one_token_prompt_has_no_features_and_a_graphs_features_are_copied() -> None:
    """`keep` copies, so that the replay of another step does not change what was queued."""
    target = WAYS["graphs"]()
    prefix = target.prefill([3], LEVELS)
    assert prefix.features is not None and prefix.features.shape == (0, 3 * target.config.hidden_size)
    collector = Collector(LEVELS)
    session = target.session(prefix, 50, head_session=collector)
    session.score(TokenTree.chain(3, [4]))
    assert session._features is not None
    session.keep((0,))
    queued_features = collector.features[0].clone()
    with torch.inference_mode():
        session._features.zero_()
    assert torch.equal(collector.features[0], queued_features) and queued_features.any()


def test_levels_that_a_model_lacks_are_refused() -> None:
    check_levels((0, 2), 2, "The head")
    for levels in ((3,), (-1, 2), ()):
        with pytest.raises(InputError, match=r"^The head reads .* levels 0 to 2; give a head .*\.$"):
            check_levels(levels, 2, "The head")


def test_a_scripted_target_has_no_hidden_states_to_read() -> None:
    target = ScriptedTarget(tiny_model("llama"), {}, "tiny")
    prefix = target.prefill([3, 4], (2,))
    with pytest.raises(InputError, match="random weights, whose hidden states no head can read"):
        target.session(prefix, 4)
