"""Heads in a race: a session follows a plain recomputation, an oracle is accepted whole, and no head changes a text.

A feature is a token's hidden states at the levels that a head reads: level i enters the target's layer i. A path is the
tokens of a draft after the pending token, the last token of the text, whose own hidden state is not known yet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu, softmax
from transformers import LlamaConfig, LlamaModel

from specrace.core.cost_curve import CostCurve
from specrace.core.events import Finished
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.drafters import head_lanes
from specrace.engine.generate import generate
from specrace.engine.race import race
from specrace.engine.spec import RaceSpec
from specrace.heads import eagle, hydra
from specrace.heads.checkpoint import read_checkpoint
from specrace.heads.eagle import EagleHead
from specrace.heads.layouts import build_head
from specrace.heads.loading import attach_heads, read_head
from specrace.model.capture import capture_graphs, capture_replay
from specrace.model.target import Target
from tests.heads import folders
from tests.model.forward.test_graphs import FakeCapturer
from tests.models import COMPILABLE, tiny_model
from tests.parts import EOS, VOCAB, random_prompt, random_tree

# A shortlist, with the end-of-text token.
IDS = (EOS, 3, 4, 7, 9, 12, 13, 20, 31)


def target_of(layers: int = 2, **changes: Any) -> Target:
    """A random Llama with this number of layers, with changes to its config."""
    return Target(tiny_model("llama", num_hidden_layers=layers, **changes), name="llama")


def hidden_states(target: Target, tokens: Sequence[int]) -> list[Tensor]:
    """The hidden states [T, d] at each level: the embeddings, then each layer's output, the last one normed."""
    with torch.no_grad():
        output = target.model(input_ids=torch.tensor([list(tokens)]), output_hidden_states=True)
    return [state[0] for state in output.hidden_states]


def embed(target: Target, tokens: Sequence[int]) -> Tensor:
    """The embeddings of these tokens, [T, d]."""
    weight: Tensor = target.model.get_input_embeddings().weight
    return weight[list(tokens)]


def plain_eagle_one(tensors: dict[str, Tensor], target: Target, text: Sequence[int], path: Sequence[int]) -> Tensor:
    """Logits after `path`, the tokens that follow `text`, by transformers' own layer over the whole sequence."""
    sizes = {**folders.SIZES, "hidden_size": target.config.hidden_size, "vocab_size": VOCAB}
    config = LlamaConfig(num_hidden_layers=1, rms_norm_eps=1e-5, **sizes)
    model = LlamaModel(config).eval()
    layer_weights = {
        name.removeprefix("layers.0."): value for name, value in tensors.items() if name.startswith("layers.0.")
    }
    missing = model.layers[0].load_state_dict(layer_weights, strict=False)
    assert missing.missing_keys == ["input_layernorm.weight"] and not missing.unexpected_keys
    model.layers[0].input_layernorm = torch.nn.Identity()
    model.norm = torch.nn.Identity()
    features, tokens = list(hidden_states(target, text[:-1])[-1]), list(text[1:])
    for token in (*path, None):
        inputs = torch.cat([embed(target, tokens), torch.stack(features)], dim=-1)
        with torch.no_grad():
            rows = model(
                inputs_embeds=linear(inputs, tensors["fc.weight"], tensors["fc.bias"])[None]
            ).last_hidden_state[0]
        features.append(rows[-1])
        if token is not None:
            tokens.append(token)
    return linear(features[-1], target.model.get_output_embeddings().weight)


def _norm(rows: Tensor, weight: Tensor) -> Tensor:
    """RMS norm."""
    return rows / (rows.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def _rotated(rows: Tensor) -> Tensor:
    """Rotary positions 0, 1, ... of rows [H, T, D], from complex numbers."""
    size = rows.shape[-1]
    angles = torch.arange(rows.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
    turned = torch.complex(*rows.split(size // 2, -1)) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], -1)


def plain_eagle_three(
    tensors: dict[str, Tensor], target: Target, text: Sequence[int], path: Sequence[int], *, speculators: bool = False
) -> Tensor:
    """Logits over the draft vocabulary after `path`, by dense attention over the whole sequence, written out.

    `speculators`: with its names, `norm_before_residual` and `norm_output`.
    """
    states, width = hidden_states(target, text[:-1]), target.config.hidden_size
    # EAGLE-3's own, which a config may leave out.
    levels = (2, target.num_layers // 2, target.num_layers - 3)
    joined = torch.cat([states[level] for level in levels], -1)
    if "fc_norm.0.weight" in tensors:
        joined = torch.cat([_norm(states[level], tensors[f"fc_norm.{n}.weight"]) for n, level in enumerate(levels)], -1)
    if "input_norm.weight" in tensors:
        joined = _norm(joined, tensors["input_norm.weight"])
    features, tokens = list(linear(joined, tensors["fc.weight"])), list(text[1:])
    prefix = "layers.0." if speculators else "midlayer."
    weight = {name.removeprefix(prefix): value for name, value in tensors.items()}
    for token in (*path, None):
        stacked = torch.stack(features)
        inputs = torch.cat(
            [
                _norm(embed(target, tokens), weight["input_layernorm.weight"]),
                _norm(stacked, weight["hidden_norm.weight"]),
            ],
            -1,
        )
        heads = [
            linear(inputs, weight[f"self_attn.{name}_proj.weight"]).unflatten(-1, (-1, width // 4)).transpose(0, 1)
            for name in "qkv"
        ]
        queries, keys = _rotated(heads[0]), _rotated(heads[1]).repeat_interleave(2, 0)
        scores = queries @ keys.transpose(1, 2) / (width // 4) ** 0.5
        future = torch.ones(len(stacked), len(stacked), dtype=torch.bool).triu(1)
        mixed = softmax(scores.masked_fill(future, -torch.inf), -1) @ heads[2].repeat_interleave(2, 0)
        residual = _norm(stacked, weight["hidden_norm.weight"]) if speculators else stacked
        rows = residual + linear(mixed.transpose(0, 1).flatten(1), weight["self_attn.o_proj.weight"])
        normed = _norm(rows, weight["post_attention_layernorm.weight"])
        gate, up = (linear(normed, weight[f"mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        rows = rows + linear(silu(gate) * up, weight["mlp.down_proj.weight"])
        normed = _norm(rows[-1], tensors["norm.weight"])
        features.append(normed if speculators else rows[-1])
        if token is not None:
            tokens.append(token)
    return linear(normed, tensors["lm_head.weight"])


def plain_block(
    tensors: dict[str, Tensor], target: Target, text: Sequence[int], path: Sequence[int], *, first: int = 1
) -> Tensor:
    """Logits after `path` by dense attention of a block of four rows, written out; row `first` guesses first."""
    width = target.config.hidden_size
    states = hidden_states(target, text[:-1])
    # The outputs of layers 0 and 1 (`folders.block`) are levels 1 and 2.
    context = _norm(linear(torch.cat([states[1], states[2]], -1), tensors["fc.weight"]), tensors["hidden_norm.weight"])
    # The pending token, then the mask, whose token is 2 in these heads.
    rows, number = embed(target, [text[-1], 2, 2, 2]), 0
    while f"layers.{number}.input_layernorm.weight" in tensors:
        prefix = f"layers.{number}."
        weight = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        inputs = torch.cat([context, _norm(rows, weight["input_layernorm.weight"])])
        queries, keys, values = (
            linear(inputs, weight[f"self_attn.{name}_proj.weight"]).unflatten(-1, (-1, width // 4)).transpose(0, 1)
            for name in "qkv"
        )
        queries = _rotated(_norm(queries, weight["self_attn.q_norm.weight"]))[:, -4:]
        keys = _rotated(_norm(keys, weight["self_attn.k_norm.weight"])).repeat_interleave(2, 0)
        mixed = softmax(queries @ keys.transpose(1, 2) / (width // 4) ** 0.5, -1) @ values.repeat_interleave(2, 0)
        rows = rows + linear(mixed.transpose(0, 1).flatten(1), weight["self_attn.o_proj.weight"])
        normed = _norm(rows, weight["post_attention_layernorm.weight"])
        gate, up = (linear(normed, weight[f"mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        rows = rows + linear(silu(gate) * up, weight["mlp.down_proj.weight"])
        number += 1
    output = target.model.get_output_embeddings().weight
    if "d2t" in tensors:
        output = output[tensors["d2t"] + torch.arange(len(tensors["d2t"]))]
    logits = linear(_norm(rows, tensors["norm.weight"]), output)[first + len(path)]
    if "markov_head.markov_w1.weight" in tensors:
        before = tensors["markov_head.markov_w1.weight"][[*text, *path][-1]]
        logits = logits + linear(before, tensors["markov_head.markov_w2.weight"])
    return logits


def plain_medusa(tensors: dict[str, Tensor], target: Target, text: Sequence[int], path: Sequence[int]) -> Tensor:
    """Logits of the head for the token after `path`, from the feature of the token before the pending one."""
    feature, head = hidden_states(target, text[:-1])[-1][-1], len(path)
    row = feature + silu(linear(feature, tensors[f"{head}.0.linear.weight"], tensors[f"{head}.0.linear.bias"]))
    return linear(row, target.model.get_output_embeddings().weight)


def plain_vllm_medusa(tensors: dict[str, Tensor], target: Target, text: Sequence[int], path: Sequence[int]) -> Tensor:
    """Logits of the head for the token after `path`, over the tokens of its output layer."""
    row, head = hidden_states(target, text[:-1])[-1][-1], len(path)
    for block in range(2):
        name = f"blocks.{head}.layers.{block}"
        row = row + silu(linear(row, tensors[f"{name}.weight"], tensors.get(f"{name}.bias")))
    return linear(row, tensors.get("lm_head.weight", tensors.get(f"lm_heads.{head}.weight")))


def plain_hydra(
    tensors: dict[str, Tensor], target: Target, text: Sequence[int], path: Sequence[int], *, plus: bool = False
) -> Tensor:
    """Logits of the head for the token after `path`, from the state before the pending token and all tokens since."""
    head, blocks = len(path), ("1", "3") if plus else ("0", "1")
    state = hidden_states(target, text[:-1])[-1][-1]
    if plus:
        state = plain_prefix_layer(tensors, target, hidden_states(target, text[:-1])[-2])[-1]
    row = torch.cat([state, *embed(target, [text[-1], *path])])

    def layer(name: str, rows: Tensor) -> Tensor:
        return linear(rows, tensors[f"hydra_mlp.{head}.{name}.weight"], tensors[f"hydra_mlp.{head}.{name}.bias"])

    row = layer(f"{blocks[0]}.res_connection", row) + silu(layer(f"{blocks[0]}.linear", row))
    row = row + silu(layer(f"{blocks[1]}.linear", row))
    own = f"hydra_lm_head.{head}{'.1' if plus else ''}"
    if f"{own}.weight" in tensors:
        return linear(row, tensors[f"{own}.weight"], tensors[f"{own}.bias"])
    return linear(row, target.model.get_output_embeddings().weight)


def plain_prefix_layer(tensors: dict[str, Tensor], target: Target, features: Tensor) -> Tensor:
    """The states [T, d] after Hydra++'s prefix layer, by a whole Llama of one layer."""
    sizes = {**folders.SIZES, "hidden_size": target.config.hidden_size, "vocab_size": VOCAB}
    model = LlamaModel(LlamaConfig(num_hidden_layers=1, rms_norm_eps=1e-5, **sizes)).eval()
    prefix = "prefix_embeding_layer."
    weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    missing = model.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["embed_tokens.weight"] and not missing.unexpected_keys
    states: Tensor = model(inputs_embeds=features[None]).last_hidden_state[0]
    return states


# For each kind: the writer of a head, its plain recomputation, the target's number of layers, the depth of a draft.
KINDS: dict[str, tuple[Callable[..., Path], Callable[..., Tensor], int, int]] = {
    "eagle one": (folders.eagle_one, plain_eagle_one, 2, 4),
    "eagle one, compiled": (folders.eagle_one, plain_eagle_one, 2, 4),
    "eagle three": (folders.eagle_three, plain_eagle_three, 5, 4),
    "eagle three, speculators": (
        partial(folders.speculators, norm_before_residual=True, norm_output=True, fc_norm=True),
        partial(plain_eagle_three, speculators=True),
        5,
        4,
    ),
    "eagle three, one norm": (
        partial(folders.speculators, norm_before_residual=True, norm_output=True, norm_before_fc=True),
        partial(plain_eagle_three, speculators=True),
        5,
        4,
    ),
    "medusa": (folders.medusa, plain_medusa, 2, 3),
    "medusa, vllm": (folders.vllm_medusa, plain_vllm_medusa, 2, 3),
    "medusa, vllm, shared output": (partial(folders.vllm_medusa, shared=True), plain_vllm_medusa, 2, 3),
    "hydra": (folders.hydra, plain_hydra, 2, 3),
    "hydra++": (
        partial(folders.hydra, plus=True, own=True, hidden_state_offset=1),
        partial(plain_hydra, plus=True),
        2,
        3,
    ),
    "dflash of two layers": (partial(folders.block, layers=2), plain_block, 3, 3),
    "dspark": (partial(folders.block, rank=3), partial(plain_block, first=0), 3, 4),
    "dspark, compiled": (partial(folders.block, rank=3), partial(plain_block, first=0), 3, 4),
}


def _expected(logits: Tensor, ids: Sequence[int], k: int) -> list[tuple[int, float]]:
    """The k likeliest tokens and their probabilities; logits over the vocabulary are cut to `ids`."""
    if ids and len(logits) == VOCAB:
        logits = logits[list(ids)]
    probs, places = logits.float().softmax(-1).topk(k)
    names = ids or range(VOCAB)
    return [(names[place], prob) for place, prob in zip(places.tolist(), probs.tolist(), strict=True)]


@pytest.mark.parametrize("ids", [(), IDS], ids=["all tokens", "a shortlist"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_guesses_what_a_plain_recomputation_gives(
    kind: str, ids: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked over steps with random accepted paths, some of them without a draft, and for a second text.

    The head's cache is full after some steps, and grows.
    """
    for module in (eagle, hydra):
        monkeypatch.setattr(module, "_GROWTH", 0)
    write, plain, layers, max_depth = KINDS[kind]
    plain = torch.no_grad()(plain)
    target = target_of(layers, **COMPILABLE)
    compiled = kind.endswith("compiled")
    if compiled:
        # Narrow vectors run on every processor that the decoder runs on.
        capture_replay(target, compiled=True, vector_width=8)
    head = build_head(read_head(write(tmp_path / "head", target, ids=ids)), target)
    assert not isinstance(head, EagleHead) or compiled == (head.compiled is not None)
    tensors = read_checkpoint(tmp_path / "head").tensors
    # The second text is short: it shows that the head keeps nothing of the first.
    for seed, num_steps in enumerate((6, 2)):
        rng = random.Random(f"{kind} {seed}")
        text = [5, *random_prompt(rng, 12), 6]
        prompted = head.after(text, target.prefill(text, head.levels))
        session = prompted.session(SamplingParams(), 2)
        lane = target.session(target.prefill(text), 60, head_session=session)
        for step in range(num_steps):
            # A drafter need not ask at every step; what it missed is read when it asks again.
            if step % 3 != 1:
                session.begin(text[-1])
                path: tuple[int, ...] = ()
                frontier: list[tuple[int, ...]] = [()]
                for _ in range(max_depth):
                    guesses = session.likeliest(frontier, 3)
                    row = rng.randrange(len(frontier))
                    path = frontier[row]
                    expected = _expected(plain(tensors, target, text, path), ids, 3)
                    assert [token for token, _ in guesses[row]] == [token for token, _ in expected]
                    torch.testing.assert_close(
                        torch.tensor([prob for _, prob in guesses[row]]),
                        torch.tensor([prob for _, prob in expected]),
                        rtol=1e-3,
                        atol=1e-4,
                    )
                    frontier = list(dict.fromkeys((*path, rng.randrange(VOCAB)) for _ in range(2)))
            tree = random_tree(rng, text[-1], 5)
            lane.score(tree)
            accepted = tree.path_to(rng.randrange(len(tree)))
            lane.keep(accepted)
            text += [tree.tokens[node] for node in accepted[1:]] + [rng.randrange(VOCAB)]


def test_a_prompt_of_one_token_has_no_guess_until_a_token_was_accepted(tmp_path: Path) -> None:
    target = target_of()
    for write in (folders.eagle_one, folders.medusa, folders.hydra, partial(folders.hydra, plus=True)):
        head = build_head(read_head(write(tmp_path / "head", target)), target)
        session = head.after([4], target.prefill([4], head.levels)).session(SamplingParams(), 8)
        lane = target.session(target.prefill([4]), 60, head_session=session)
        session.begin(4)
        assert session.likeliest([()], 3) == [[]]
        lane.score(TokenTree.chain(4))
        lane.keep((0,))
        session.begin(9)
        assert len(session.likeliest([()], 3)[0]) == 3


def oracle(tmp_path: Path) -> Target:
    """A target of one layer and a head that computes the same: its first linear layer passes the embedding on.

    The head has no norm before its attention or after its layer, so the embeddings have a root mean square of 1, and
    all norms have the weight 1. Attention adds nothing, because the head cannot see the text's first token.
    """
    target = target_of(1)
    model, width = target.model, target.config.hidden_size
    with torch.no_grad():
        for norm in (model.model.layers[0].input_layernorm, model.model.layers[0].post_attention_layernorm):
            norm.weight.fill_(1.0)
        model.model.norm.weight.fill_(1.0)
        table = model.get_input_embeddings().weight
        table /= table.square().mean(-1, keepdim=True).sqrt()
        model.model.layers[0].self_attn.o_proj.weight.zero_()
    layer = {f"layers.0.{name}": value for name, value in model.model.layers[0].state_dict().items()}
    del layer["layers.0.input_layernorm.weight"]
    joined = torch.cat([torch.eye(width), torch.zeros(width, width)], -1)
    tensors = layer | {"fc.weight": joined}
    config = folders.base_config(target, bias=False, intermediate_size=32)
    folders.write_head(tmp_path / "oracle", config, tensors)
    attach_heads(target, [str(tmp_path / "oracle")], head_lanes())
    return target


def _race(target: Target, spec: RaceSpec, prompt: Sequence[int] = (3, 4, 5, 6, 3, 4)) -> Finished:
    """The last event of a race."""
    *_, finished = race(target, tuple(prompt), spec)
    assert isinstance(finished, Finished)
    return finished


def test_the_target_as_its_own_head_is_accepted_whole(tmp_path: Path) -> None:
    """Every draft token is accepted. With the rows of its first layer shifted, the head fails."""
    target = oracle(tmp_path)
    target.eos_ids = frozenset()
    assert _acceptance(target) == 1.0
    network = target.heads["eagle"].network
    network.join.weight = network.join.weight.roll(1, 0)
    assert _acceptance(target) < 0.3


def _acceptance(target: Target) -> float:
    """The share of draft tokens that were accepted while 80 tokens were generated; extra rows are free."""
    curve = CostCurve((1, 99), (1.0, 1.0))
    steps = list(generate(target, "eagle", (3, 4, 5, 6), max_new_tokens=80, num_draft=4, curve=curve, width=1))
    drafted = sum(step.tree.num_draft for step in steps)
    assert drafted > 40
    return sum(len(step.verdict.path) - 1 for step in steps) / drafted


# How a target's forwards may run -> a function that makes them run so.
WAYS: dict[str, Callable[[Target], object]] = {
    "eager": lambda target: target.model,
    "fused": partial(capture_replay, compiled=False),
    "compiled": partial(capture_replay, compiled=True),
    "graphs": lambda target: capture_graphs(target, FakeCapturer()),
}


@pytest.mark.parametrize(
    ("way", "temperature"), [("eager", 0.8), ("fused", 0.0), ("compiled", 0.8), ("compiled", 0.0), ("graphs", 0.8)]
)
def test_no_head_changes_a_text(way: str, temperature: float, tmp_path: Path) -> None:
    """Random heads draft nonsense; the text stays vanilla's in every way of running the target."""
    target = target_of(3, **COMPILABLE)
    WAYS[way](target)
    heads = [
        folders.eagle_one(tmp_path / "e", target, ids=IDS, intermediate_size=48),
        folders.medusa(tmp_path / "m", target),
        folders.hydra(tmp_path / "h", target, plus=True),
        folders.block(tmp_path / "b", target, ids=IDS, intermediate_size=48),
    ]
    attach_heads(target, [str(folder) for folder in heads], head_lanes())
    spec = RaceSpec(("eagle", "medusa", "hydra", "block"), 16, temperature=temperature, seed=4)
    lanes = _race(target, spec, (3, 4, 5, 6) * 4).lanes
    assert [lane.lane for lane in lanes] == ["vanilla", "eagle", "medusa", "hydra", "block"]
    assert all(lane.identical for lane in lanes)
