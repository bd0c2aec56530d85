"""Test parts that need no model: targets that are functions, scripted drafters, random texts and trees."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from specrace.core.errors import InputError
from specrace.core.rejection import warp_probs
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.core.verify import Scores, Verdict, verify
from specrace.drafters import Drafter, DrafterInputs, head_lanes
from specrace.drafters.sessions import DraftModel, Head
from specrace.engine.lane import Lane
from specrace.engine.setup import RaceTarget

VOCAB = 32
EOS = 1
NextToken = Callable[[Sequence[int]], int]
# A language model: the logits after a text, float64 [V].
Logits = Callable[[Sequence[int]], np.ndarray]


def random_prompt(rng: random.Random, max_tokens: int = 40) -> tuple[int, ...]:
    """1 to `max_tokens` tokens, made of four phrases that repeat, so that drafters that copy find something to copy."""
    words = [[rng.randrange(2, VOCAB) for _ in range(rng.randint(1, 5))] for _ in range(4)]
    tokens: list[int] = []
    while len(tokens) < max_tokens:
        tokens += rng.choice(words)
    return tuple(tokens[: rng.randint(1, max_tokens)])


def run_lane(
    target: RaceTarget,
    prefix: Any,
    prompt: Sequence[int],
    drafter: Drafter,
    *,
    params: SamplingParams | None = None,
    max_new_tokens: int = 16,
    num_draft: int = 8,
    eos_ids: frozenset[int] | None = None,
) -> Lane:
    """Run a lane with this drafter to its end, and return it."""
    session = target.session(prefix, max_new_tokens + num_draft + 1, params or SamplingParams())
    ends = target.eos_ids if eos_ids is None else eos_ids
    lane = Lane("tested", drafter, session, prompt, max_new_tokens=max_new_tokens, num_draft=num_draft, eos_ids=ends)
    while not lane.end:
        lane.step()
    return lane


class FunctionSession:
    """A session whose target is a function of all tokens so far: no model, no rounding.

    `kept`: the text so far without the pending token, which is the root of the next tree.
    """

    def __init__(self, prompt: Sequence[int], next_token: NextToken) -> None:
        self.kept = list(prompt[:-1])
        self.next_token = next_token
        self._tree: TokenTree | None = None

    def score(self, tree: TokenTree) -> Scores:
        return Scores(tuple(map(self.next_token, self.texts(tree))))

    def texts(self, tree: TokenTree) -> list[list[int]]:
        """The text up to and including each node of `tree`; the next `keep` refers to this tree."""
        self._tree = tree
        texts = [[*self.kept, tree.tokens[0]]]
        for node in range(1, len(tree)):
            texts.append([*texts[tree.parents[node]], tree.tokens[node]])
        return texts

    def keep(self, path: Sequence[int]) -> None:
        assert self._tree is not None
        self.kept += [self._tree.tokens[node] for node in path]


def markov(seed: int, vocab: int = VOCAB, order: int = 2) -> NextToken:
    """A function that chooses the next token at random, but always the same one after the same last `order` tokens."""
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
    """A lane with a function as its target, before its first step."""
    session = FunctionSession(prompt, next_token)
    return Lane("tested", drafter, session, prompt, max_new_tokens=max_new_tokens, num_draft=num_draft, eos_ids=eos_ids)


def table(seed: int = 0, vocab: int = VOCAB, order: int = 2, scale: float = 2.0) -> Logits:
    """A language model whose logits depend on the last `order` tokens, drawn once for each such context."""
    rows: dict[tuple[int, ...], np.ndarray] = {}

    def logits(tokens: Sequence[int]) -> np.ndarray:
        context = tuple(tokens[-order:])
        if context not in rows:
            rows[context] = scale * np.random.default_rng((seed, *context)).standard_normal(vocab)
        return rows[context]

    return logits


class TableSession(FunctionSession):
    """A session on a language model; noise keyed by (seed, position) makes each position's token reproducible."""

    def __init__(self, prompt: Sequence[int], logits: Logits, params: SamplingParams, num_top: int = 0) -> None:
        def next_token(tokens: Sequence[int]) -> int:
            return int(perturbed_logits(logits(tokens)[None], params, [len(tokens)]).argmax())

        super().__init__(prompt, next_token)
        self.logits, self.params, self.num_top = logits, params, num_top

    def score(self, tree: TokenTree) -> Scores:
        texts = self.texts(tree)
        rows = np.stack([self.logits(text) for text in texts])
        targets = tuple(perturbed_logits(rows, self.params, [len(text) for text in texts]).argmax(axis=1).tolist())
        if not self.num_top:
            return Scores(targets)
        top = (-rows).argsort(axis=1, kind="stable")[:, : self.num_top]
        return Scores(targets, tuple(map(tuple, top.tolist())))

    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        return warp_probs(softmax(np.stack([self.logits(text) for text in self.texts(tree)])), self.params)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Distributions of logits, [..., V]."""
    weights: np.ndarray = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def perturbed_logits(logits: np.ndarray, params: SamplingParams, positions: Sequence[int]) -> np.ndarray:
    """The values [N, V] whose maxima are the chosen tokens: logits; in sampling, warped log-probabilities and noise."""
    if not params.temperature:
        return logits
    with np.errstate(divide="ignore"):
        warped: np.ndarray = np.log(warp_probs(softmax(logits), params))
    return warped + np.stack([noise(params.seed, position, logits.shape[1]) for position in positions])


@cache
def noise(seed: int, position: int, vocab: int) -> np.ndarray:
    """Gumbel noise of one position, [V]."""
    return np.random.default_rng((seed, position)).gumbel(size=vocab)


@dataclass(frozen=True)
class FunctionPrefix:
    """A prompt that a function has read, in 1 ms by its own account."""

    tokens: tuple[int, ...]
    ms: float = 1.0


class FunctionTarget:
    """A target for races and benchmarks that is a function of all tokens so far: no model, no rounding.

    `used_params` holds the sampling parameters that `session` and `top_two` were called with, in order.
    """

    device_type = "cpu"
    chains_only = False
    vocab_size = VOCAB
    threads = 1

    def __init__(self, next_token: NextToken, eos_ids: frozenset[int] = frozenset(), max_context: int = 10_000) -> None:
        self.next_token, self.eos_ids, self.max_context = next_token, eos_ids, max_context
        self.used_params: list[SamplingParams | None] = []
        self.drafting: DraftModel = CopyingModel(vocab=self.vocab_size)
        self.heads: dict[str, Head] = {lane: CopyingHead(masked=lane == "space") for lane in head_lanes()}

    def use_threads(self, count: int) -> None:
        assert count == 1

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        if prompt_tokens + max_new_tokens + num_draft > self.max_context:
            raise InputError("The prompt is too long.")

    def prefill(self, prompt: Sequence[int], levels: tuple[int, ...] = ()) -> FunctionPrefix:
        if not prompt:
            raise InputError("The prompt is empty.")
        return FunctionPrefix(tuple(prompt))

    def session(
        self,
        prefix: Any,
        room: int,
        params: SamplingParams | None = None,
        num_top: int = 0,
        rows: Sequence[int] = (1,),
        head_session: Any = None,
    ) -> FunctionSession:
        self.used_params.append(params)
        return self._session(prefix.tokens, params, num_top)

    def _session(self, tokens: tuple[int, ...], params: SamplingParams | None, num_top: int) -> FunctionSession:
        return FunctionSession(tokens, self.next_token)

    def draft_models(self) -> tuple[DraftModel, ...]:
        # As many as any lane can draft with.
        return (self.drafting,) * 4

    def head(self, lane: str) -> Head | None:
        return self.heads.get(lane)

    def state_copies(self) -> Head:
        return CopyingHead()

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        """The function's token with any other one, and any gap between their scores."""
        self.used_params.append(params)
        return (self.next_token(tokens), 0), 0.25

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def describe(self) -> dict[str, Any]:
        return {"model": "a function"}

    def reset_peak_memory(self) -> None:
        """Nothing to reset: a function takes no memory."""

    def peak_memory(self) -> int | None:
        return None

    def measure_bandwidth(self) -> None:
        """Nothing to measure: a function moves no bytes."""

    def step_limit_ms(self, columns: float, rows: float) -> float:
        """Any figure that grows with the text (`columns` of the KV cache) and with the tree (`rows`)."""
        return 1e-3 * (columns + rows)


def record_sizes(session: Any, sizes: list[int]) -> Any:
    """Make a session append the size of each tree that it scores to `sizes`; returns the session."""
    score = session.score

    def recorded_score(tree: TokenTree) -> Any:
        sizes.append(len(tree))
        return score(tree)

    session.score = recorded_score
    return session


class TableTarget(FunctionTarget):
    """A target that is a small language model: a table of logits, so that it can sample and rank tokens."""

    def __init__(self, seed: int = 0, *, order: int = 2, scale: float = 2.0, vocab: int = VOCAB, **values: Any) -> None:
        self.logits = table(seed, vocab, order, scale)
        self.vocab_size = vocab
        super().__init__(lambda tokens: int(self.logits(tokens).argmax()), **values)

    def _session(self, tokens: tuple[int, ...], params: SamplingParams | None, num_top: int) -> TableSession:
        return TableSession(tokens, self.logits, params or SamplingParams(), num_top)

    def top_two(self, tokens: Sequence[int], params: SamplingParams) -> tuple[tuple[int, int], float]:
        self.used_params.append(params)
        values = perturbed_logits(self.logits(tokens)[None], params, [len(tokens)])[0]
        second, best = values.argsort()[-2:].tolist()
        return (best, second), float(values[best] - values[second])


def continuation(prompt: Sequence[int], next_token: NextToken, count: int) -> list[int]:
    """The text that the function writes after `prompt`, one token at a time."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class ScriptedDrafter:
    """A drafter whose drafts are a function of (context, budget), and which records its budgets and observations."""

    def __init__(self, propose: Callable[[Sequence[int], int], TokenTree]) -> None:
        self._propose = propose
        self.budgets: list[int] = []
        self.observed: list[tuple[TokenTree, Verdict]] = []

    def propose(self, context: Sequence[int], budget: int) -> TokenTree:
        self.budgets.append(budget)
        return self._propose(context, budget)

    def observe(self, tree: TokenTree, verdict: Verdict) -> None:
        self.observed.append((tree, verdict))


def random_tree(rng: random.Random, root: int, num_draft: int, vocab: int = VOCAB) -> TokenTree:
    """A tree of at most `num_draft` random guesses, of any shape."""
    builder = TreeBuilder(root)
    for _ in range(num_draft):
        builder.add(rng.randrange(len(builder.tokens)), rng.randrange(vocab))
    return builder.build()


def step_verdict(tree: TokenTree, targets: Sequence[int]) -> Verdict:
    """The verdict of a step in which the target's tokens are `targets`."""
    return verify(tree, Scores(tuple(targets)))


class CopyingSession:
    """A draft model's session: it predicts what followed the last token before, or else repeats the last token."""

    def __init__(self, prompt: Sequence[int], size: int, vocab: int = VOCAB) -> None:
        self.tokens = list(prompt)
        self.size, self.vocab = size, vocab
        self.readings: list[list[int]] = []

    @property
    def room(self) -> int:
        return self.size - len(self.tokens)

    def likeliest(self, tokens: Sequence[int]) -> tuple[int, float]:
        assert 0 < len(tokens) <= self.room
        self.readings.append(list(tokens))
        self.tokens += tokens
        return self._copied(self.tokens), 0.5

    @staticmethod
    def _copied(text: Sequence[int]) -> int:
        earlier = [position for position, token in enumerate(text[:-1]) if token == text[-1]]
        return text[earlier[-1] + 1] if earlier else text[-1]

    def distribution(self, tokens: Sequence[int]) -> np.ndarray:
        return self._row(self.likeliest(tokens)[0])

    def _row(self, token: int) -> np.ndarray:
        probs = np.full(self.vocab, 0.5 / (self.vocab - 1))
        probs[token] = 0.5
        return probs

    def tree_likeliest(
        self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int], k: int
    ) -> list[list[tuple[int, float]]]:
        rows = self.tree_distributions(unread, tree, nodes)
        best = np.argsort(-rows, axis=1, kind="stable")[:, :k].tolist()
        return [[(token, float(row[token])) for token in tokens] for row, tokens in zip(rows, best, strict=True)]

    def tree_distributions(self, unread: Sequence[int], tree: TokenTree, nodes: Sequence[int]) -> np.ndarray:
        assert len(unread) + max(tree.depths) + 1 <= self.room
        self.tokens += unread
        texts = [[*self.tokens, *(tree.tokens[number] for number in tree.path_to(node))] for node in nodes]
        return np.stack([self._row(self._copied(text)) for text in texts])

    def rewind(self, count: int) -> None:
        del self.tokens[count:]


class CopyingModel:
    """A draft model that copies, for texts that a function writes. `sessions` holds all sessions that were opened."""

    def __init__(self, size: int = 1 << 20, vocab: int = VOCAB) -> None:
        self.size, self.vocab = size, vocab
        self.sessions: list[CopyingSession] = []

    def after(self, prompt: Sequence[int]) -> PromptedCopyingModel:
        return PromptedCopyingModel(self, tuple(prompt))


class PromptedCopyingModel:
    """A copying model that has read a prompt, in 0 ms."""

    name, prefill_ms = "copying", 0.0

    def __init__(self, model: CopyingModel, prompt: tuple[int, ...]) -> None:
        self.model, self.prompt = model, prompt

    def session(self, params: SamplingParams, room: int = 0, rows: Sequence[int] = (1,)) -> CopyingSession:
        self.model.sessions.append(CopyingSession(self.prompt[:-1], self.model.size, self.model.vocab))
        return self.model.sessions[-1]


class CopyingHead:
    """A head that guesses the token that followed in the prompt and, half as likely, the token with the next id.

    `masked`: its sessions have the interface of a head that drafts by masks, extra rows of the target's forward.
    """

    levels = (0,)

    def __init__(self, *, masked: bool = False) -> None:
        self.masked = masked

    def after(self, prompt: Sequence[int], prefix: Any) -> PromptedCopyingHead:
        return PromptedCopyingHead(tuple(prompt), masked=self.masked)


class PromptedCopyingHead:
    """A copying head that has read a prompt, in 0 ms."""

    prefill_ms = 0.0

    def __init__(self, prompt: tuple[int, ...], *, masked: bool) -> None:
        self.prompt, self.masked = prompt, masked

    def session(self, params: SamplingParams, room: int, *, coupled: bool = True) -> CopyingHeadSession:
        return (MaskedCopyingSession if self.masked else CopyingHeadSession)(self.prompt)


class CopyingHeadSession:
    """A lane's copying head; it checks that a path's parent was asked before."""

    # No limits; one forward for each depth of a tree.
    depth, room, depths_per_forward = 1 << 30, 1 << 20, 1
    # No similar token, and `position` is -1: this head reads no states (see `PlacingHeadSession`).
    nearest = None

    def __init__(self, prompt: tuple[int, ...], vocab: int = VOCAB) -> None:
        self.after = dict(pairwise(prompt))
        self.vocab = vocab
        self.root = -1
        self.asked: set[tuple[int, ...]] = set()

    def begin(self, root: int) -> None:
        self.root = root
        self.asked = set()

    def likeliest(self, paths: Sequence[tuple[int, ...]], k: int) -> list[list[tuple[int, float]]]:
        assert paths and self.root >= 0
        guesses = []
        for path in paths:
            assert not path or path[:-1] in self.asked
            last = (self.root, *path)[-1]
            following = self.after.get(last, 0)
            guesses.append([(following, 0.6), ((following + 1) % self.vocab, 0.3)][:k])
        self.asked.update(paths)
        return guesses

    def position(self, path: tuple[int, ...]) -> int:
        return -1


class MaskedCopyingSession(CopyingHeadSession):
    """A copying head with the interface of masks (`MaskingHeadSession`); it guesses without any."""

    num_masks = 0


def inputs(prompt: Sequence[int], **values: Any) -> DrafterInputs:
    """DrafterInputs over a small vocabulary, with draft models and a head, so that any drafter can be built.

    There are four draft models, as many as any lane can draft with, all of them `draft_model`; none if that is None.
    """
    drafting = values.pop("draft_model", CopyingModel())
    draft_models = tuple(drafting.after(prompt) for _ in range(4)) if drafting else ()
    head = values.pop("head", MaskedCopyingSession(tuple(prompt)))
    return DrafterInputs(tuple(prompt), VOCAB, draft_models=draft_models, head=head, **values)


@st.composite
def trees(draw: st.DrawFn, max_draft: int = 24, vocab: int = 5) -> TokenTree:
    """Trees of any shape over a small vocabulary, so that many paths share a prefix."""
    builder = TreeBuilder(draw(st.integers(0, vocab - 1)))
    for parent, token in draw(
        st.lists(st.tuples(st.integers(0, max_draft), st.integers(0, vocab - 1)), max_size=max_draft)
    ):
        builder.add(parent % len(builder.tokens), token)
    return builder.build()
