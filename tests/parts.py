"""Parts that the core's tests share: small random models, a target that is a function, drafters that misbehave."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Scores, Verdict, verify
from specrace.drafters import Drafter, DrafterInputs
from specrace.engine.lane import Lane
from specrace.model.kv import Prefix
from specrace.model.target import Target

VOCAB = 32
EOS = 1
NextToken = Callable[[Sequence[int]], int]

_GROUPED = {"intermediate_size": 32, "num_key_value_heads": 2}
_ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, _GROUPED),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, _GROUPED),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {**_GROUPED, "head_dim": 8}),
    "mistral": (MistralConfig, MistralForCausalLM, {**_GROUPED, "sliding_window": None}),
    "gpt2": (GPT2Config, GPT2LMHeadModel, {"n_inner": 32}),
    "gpt-neox": (GPTNeoXConfig, GPTNeoXForCausalLM, {"intermediate_size": 32}),
}
ARCHITECTURES = tuple(_ARCHITECTURES)
# Changes that let a model of the Llama family run in the compiled decoder.
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}


def tiny_model(name: str, *, seed: int = 0, attention: str = "sdpa", **changes: Any) -> Any:
    """A randomly initialised model of 2 layers in fp32; weights large enough that outputs vary."""
    config_class, model_class, own = _ARCHITECTURES[name]
    values = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "initializer_range": 0.6,
        "bos_token_id": 0,
        "eos_token_id": EOS,
        "attn_implementation": attention,
    }
    torch.manual_seed(seed)
    return model_class(config_class(**(values | own | changes))).eval()


def change_config(folder: Path, **changes: Any) -> None:
    """Other values in the config.json of a saved model."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def tiny_target(name: str, *, seed: int = 0, **changes: Any) -> Target:
    """The same as a target, without a tokenizer; its draft model copies."""
    target = Target(tiny_model(name, seed=seed, **changes), name=name)
    target.drafting = CopyingModel()  # type: ignore[assignment]
    return target


def random_prompt(chance: random.Random, longest: int = 40) -> tuple[int, ...]:
    """1 to `longest` tokens, some of them repeated phrases, so that drafters that copy have something to copy."""
    words = [[chance.randrange(2, VOCAB) for _ in range(chance.randint(1, 5))] for _ in range(4)]
    tokens: list[int] = []
    while len(tokens) < longest:
        tokens += chance.choice(words)
    return tuple(tokens[: chance.randint(1, longest)])


def run_lane(
    target: Target,
    prefix: Prefix,
    prompt: Sequence[int],
    drafter: Drafter,
    *,
    params: SamplingParams | None = None,
    max_new_tokens: int = 16,
    num_draft: int = 8,
    eos_ids: frozenset[int] | None = None,
) -> Lane:
    """A lane with this drafter, run to its end."""
    session = target.session(prefix, max_new_tokens + num_draft + 1, params or SamplingParams())
    ends = target.eos_ids if eos_ids is None else eos_ids
    lane = Lane("tested", drafter, session, prompt, max_new_tokens=max_new_tokens, num_draft=num_draft, eos_ids=ends)
    while not lane.end:
        lane.step()
    return lane


class FunctionSession:
    """A session whose target is a function of all tokens so far: no model, no rounding."""

    def __init__(self, prompt: Sequence[int], next_token: NextToken) -> None:
        self.settled = list(prompt[:-1])
        self.next_token = next_token
        self._tree: TokenTree | None = None

    def score(self, tree: TokenTree) -> Scores:
        self._tree = tree
        targets = []
        for node in range(len(tree)):
            path = [tree.tokens[each] for each in tree.path_to(node)]
            targets.append(self.next_token([*self.settled, *path]))
        return Scores(tuple(targets))

    def keep(self, path: Sequence[int]) -> None:
        assert self._tree is not None
        self.settled += [self._tree.tokens[node] for node in path]


def markov(seed: int, vocab: int = VOCAB, order: int = 2) -> NextToken:
    """A text in which a token depends on the `order` before it."""
    table: dict[tuple[int, ...], int] = {}

    def next_token(tokens: Sequence[int]) -> int:
        context = tuple(tokens[-order:])
        if context not in table:
            table[context] = random.Random(f"{seed} {context}").randrange(vocab)
        return table[context]

    return next_token


def function_lane(
    prompt: Sequence[int],
    drafter: Drafter,
    next_token: NextToken,
    *,
    max_new_tokens: int = 32,
    num_draft: int = 8,
    eos_ids: frozenset[int] = frozenset(),
) -> Lane:
    """A lane on a function, at its start."""
    session = FunctionSession(prompt, next_token)
    return Lane("tested", drafter, session, prompt, max_new_tokens=max_new_tokens, num_draft=num_draft, eos_ids=eos_ids)


def continuation(prompt: Sequence[int], next_token: NextToken, count: int) -> list[int]:
    """The text that the function writes after `prompt`, one token at a time."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class Scripted:
    """A drafter that proposes what a function of (context, budget) says, and remembers what it was told."""

    def __init__(self, propose: Callable[[Sequence[int], int], TokenTree]) -> None:
        self._propose = propose
        self.budgets: list[int] = []
        self.told: list[tuple[TokenTree, Verdict]] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        self.budgets.append(budget)
        return self._propose(context, budget)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        self.told.append((tree, verdict))


def random_tree(chance: random.Random, root: int, num_draft: int, vocab: int = VOCAB) -> TokenTree:
    """A tree of at most `num_draft` random guesses, of any shape."""
    builder = TreeBuilder(root)
    for _ in range(num_draft):
        builder.add(chance.randrange(len(builder.tokens)), chance.randrange(vocab))
    return builder.build()


def assert_scored_alike(target: Target, plain: Target, name: str, atol: float) -> None:
    """Prompts, random trees of any size, kept paths, step after step: the same logits but for rounding, and cache."""
    chance = random.Random(name)
    text = list(random_prompt(chance))
    own, theirs = target.prefill(text).store.clone(400), plain.prefill(text).store.clone(400)
    for size in (0, 1, 6, 2, 0, 15, 20, 40):
        tree = random_tree(chance, text[-1], size)
        found, expected = target.logits(own, tree), plain.logits(theirs, tree)
        assert found.shape == expected.shape == (len(tree), VOCAB)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=atol)
        path = tree.path_to(chance.randrange(len(tree)))
        own.keep(path)
        theirs.keep(path)
        assert own.data is not None and theirs.data is not None
        caches = (own.data[..., : own.length, :], theirs.data[..., : theirs.length, :])
        torch.testing.assert_close(*caches, rtol=1e-4, atol=atol)
        text += [tree.tokens[node] for node in path[1:]] + [chance.randrange(VOCAB)]


def step_verdict(tree: TokenTree, targets: Sequence[int]) -> Verdict:
    """The verdict of a step in which the target says `targets`."""
    return verify(tree, Scores(tuple(targets)))


class CopyingSession:
    """A draft model's session that expects after a token what followed it last, and else the token itself."""

    def __init__(self, prompt: Sequence[int], size: int) -> None:
        self.tokens = list(prompt)
        self.size = size
        self.readings: list[list[int]] = []

    @property
    def room(self) -> int:
        return self.size - len(self.tokens)

    def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
        assert 0 < len(tokens) <= self.room
        self.readings.append(list(tokens))
        self.tokens += tokens
        earlier = [place for place, token in enumerate(self.tokens[:-1]) if token == self.tokens[-1]]
        return (self.tokens[earlier[-1] + 1] if earlier else self.tokens[-1]), 0.5

    def distribution(self, tokens: Sequence[int]) -> np.ndarray:
        probs = np.full(VOCAB, 0.5 / (VOCAB - 1))
        probs[self.likeliest(tokens)[0]] = 0.5
        return probs

    def rewind(self, count: int) -> None:
        del self.tokens[count:]


class CopyingModel:
    """A draft model without a model, for texts that a function writes. `sessions` are those that were opened."""

    def __init__(self, size: int = 1 << 20) -> None:
        self.size = size
        self.sessions: list[CopyingSession] = []

    def after(self, prompt: Sequence[int]) -> PromptedCopyingModel:
        return PromptedCopyingModel(self, tuple(prompt))


class PromptedCopyingModel:
    """The same behind a prompt, which it reads in no time."""

    prefill_ms = 0.0

    def __init__(self, model: CopyingModel, prompt: tuple[int, ...]) -> None:
        self.model, self.prompt = model, prompt

    def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> CopyingSession:
        self.model.sessions.append(CopyingSession(self.prompt[:-1], self.model.size))
        return self.model.sessions[-1]


def inputs(prompt: Sequence[int], **values: Any) -> DrafterInputs:
    """DrafterInputs over the tests' small vocabulary, with all that any drafter needs."""
    drafting = values.pop("draft_model", CopyingModel())
    return DrafterInputs(tuple(prompt), VOCAB, draft_model=drafting and drafting.after(prompt), **values)


@st.composite
def trees(draw: st.DrawFn, most: int = 24, vocab: int = 5) -> TokenTree:
    """Trees of any shape over a small vocabulary, so that many share prefixes."""
    builder = TreeBuilder(draw(st.integers(0, vocab - 1)))
    for parent, token in draw(st.lists(st.tuples(st.integers(0, most), st.integers(0, vocab - 1)), max_size=most)):
        builder.add(parent % len(builder.tokens), token)
    return builder.build()
