"""The scorer: a Hugging Face decoder-only language model; it scores one token tree at a time.

Beside logits, its forwards can return features (hidden states that a trained head reads, chosen by level), and take a
head's `Masks`: learned inputs below a tree's nodes, at which the model guesses further tokens. These have nothing to do
with attention masks.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from specrace.core.clock import since_ms, thread_ms
from specrace.core.cost_curve import row_counts
from specrace.core.errors import InputError, shorten
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.model.forward.by_position import use_positions
from specrace.model.forward.chains import ROW_BY_ROW, chain_forward
from specrace.model.forward.graphs import GraphPool
from specrace.model.forward.kv import KVStore, Prefix
from specrace.model.forward.masked import MaskedForward, MaskReader, Masks, masks_of
from specrace.model.forward.reach import REACH_SETTINGS, layer_reaches
from specrace.model.forward.reading import Reader
from specrace.model.forward.tapped import FeatureReader, Levels, TappedForward, features_of
from specrace.model.forward.tree_inputs import TreeInputs, TreeTensors, call_on_tree, run_tree
from specrace.model.limits import max_context
from specrace.model.machine.device_map import distinct, layer_devices
from specrace.model.sampling import Sampler
from specrace.model.session import GraphedSession, ModelSession

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Weights of 8 bits; everything else is float32.
INT8 = "int8"
# How many elements the attention masks of all kept input buffers may have together: a thousand large ones would take
# gigabytes.
MAX_MASK_ELEMENTS = 8_000_000
# The row counts that CUDA graphs are captured for by default: 1, 9, 17, 33 and 65, for drafts of up to 64 tokens.
_ROWS = row_counts(65)


class Replay(Protocol):
    """A forward over a tree, captured once and called for every step.

    With `own_threads` it runs in threads other than torch's. With `keeps_float32`, activations are float32 between the
    layers whatever the model's dtype is. `version` names the code that runs, if that is not torch's; else "".
    """

    name: str
    version: str
    own_threads: bool
    keeps_float32: bool

    @property
    def reader(self) -> Reader | None:
        """The forward that reads prompts; None if the eager model reads them."""

    def __call__(self, tree: TreeTensors, data: Tensor) -> Tensor:
        """Logits [N, V] of a tree; `data` [L, 2, 1, H, end, D] is the cache up to the tree's last column."""

    def tapped(self, levels: Levels) -> TappedForward:
        """A forward like this one whose second output is the features at `levels`; may be built at its first call."""

    def masked(self, masks: Masks) -> MaskedForward:
        """A forward like this one that also accepts the ids of `masks`; may be built at its first call."""


class Scorer:
    """A model and its tokenizer (None for a bare model).

    With `graphs` (CUDA graphs on a GPU) or `replay` (TorchScript or the compiled decoder on a CPU), forwards run
    without the model's Python code. `specrace.model.capture` sets one of them, or says in `eager_because` why not. A
    model may be on several devices (`layer_devices`): tokens enter on the first, `device`; keys and values stay with
    their layer; logits are read where they are computed. Raises InputError if the layers of such a model are not found.

    Use it in one thread at a time: forwards share their input buffers, and replayed forwards also their outputs.
    """

    def __init__(self, model: Any, tokenizer: Any = None, name: str = "") -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name or _model_name(str(model.config._name_or_path)) or type(model).__name__
        self.config = model.config.get_text_config()
        self.dtype: torch.dtype = model.dtype
        self.vocab_size: int = self.config.vocab_size
        self.max_context = max_context(self.config)
        self.reaches = layer_reaches(self.config)
        use_positions(model)
        self.num_layers: int = self.config.num_hidden_layers
        self.layer_devices = layer_devices(model, self.num_layers)
        self.device: torch.device = model.get_input_embeddings().weight.device if self.layer_devices else model.device
        self.devices = distinct((self.device, *self.layer_devices))
        # Stored because every step needs it: `device.type` takes 20 µs after a forward has evicted the CPU caches.
        self._on_gpu = self.device.type == "cuda"
        accepted = inspect.signature(model.forward).parameters
        # Of a prompt's logits none is used, so the model computes only the last one if it can be told.
        self._keep_last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        # On a CPU, transformers' attention is slow for a single 16-bit row: two rows, one of them padding, take a
        # quarter less time.
        self.min_rows = 2 if self.device.type == "cpu" and self.dtype.itemsize == 2 else 1
        self._inputs: dict[int, TreeInputs] = {}
        # Levels, or masks -> a replay, and its forward for them; `replay` may have been replaced since.
        self._tapped: dict[Levels, tuple[Replay, TappedForward]] = {}
        self._masked: dict[Masks, tuple[Replay, MaskedForward]] = {}
        self.graphs: GraphPool | None = None
        self.replay: Replay | None = None
        # For a model with layers that keep a state, whose trees must be chains; None if all layers attend.
        self.chain_forward = chain_forward(model, self.config, self.name, self.layer_devices)
        self.chains_only = self.chain_forward is not None
        self.eager_because = ""
        if self.layer_devices:
            self.eager_because = "on several devices"
        elif self.chain_forward is not None:
            self.eager_because = ROW_BY_ROW

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int], levels: Levels = ()) -> Prefix:
        """Read the prompt without its last token, which becomes the root of the first step's tree.

        With `levels` the prefix also holds the tokens' features. Raises InputError for an empty prompt.
        """
        if not prompt:
            raise InputError("The prompt is empty; give at least one token.")
        self.check_tokens(prompt, "The prompt has")
        began = thread_ms()
        store = self.new_store(max(1, len(prompt) - 1))
        features = None
        if len(prompt) > 1 or self._reader is not None:
            features = self.read(store, prompt[:-1], levels)
        elif levels:
            features = torch.zeros(0, len(levels) * self.config.hidden_size, dtype=self.dtype, device=self.device)
        self.synchronize()
        return Prefix(store, since_ms(began), tuple(prompt), levels, features)

    def check_tokens(self, tokens: Sequence[int], subject: str) -> None:
        """Raises InputError unless the vocabulary has all `tokens`; `subject` ("The prompt has") begins the message."""
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.vocab_size:
            raise InputError(
                f"{subject} token {shorten(max(tokens), 20)} and {self.name} has a vocabulary of {self.vocab_size}: "
                "the tokenizer belongs to another model."
            )

    def new_store(self, capacity: int) -> KVStore:
        """An empty store with room for `capacity` tokens."""
        if self.chain_forward is not None:
            return self.chain_forward.new_store(capacity)
        return KVStore(self.num_layers, capacity, self.layer_devices)

    def read(self, store: KVStore, tokens: Sequence[int], levels: Levels = ()) -> Tensor | None:
        """Read `tokens` into an empty `store` in one forward, and commit them. Callers are in inference mode.

        Returns the tokens' features [N, levels * d], or None without `levels`.
        """
        ids = torch.tensor([tokens], dtype=torch.int64, device=self.device)
        if self._reader is not None:
            features = self._reader.read(ids, store, levels)
        elif self.chain_forward is not None:
            features = self.chain_forward.read(store, ids, levels, **self._keep_last)
        else:
            positions = torch.arange(len(tokens), device=self.device)[None]
            states = {"output_hidden_states": True} if levels else {}
            output = self.model(
                input_ids=ids,
                position_ids=positions,
                past_key_values=store.cache,
                use_cache=True,
                **self._keep_last,
                **states,
            )
            features = features_of(output, levels, self.device) if levels else None
        store.commit(len(tokens))
        return features

    @property
    def _reader(self) -> Reader | None:
        """The captured forward that reads prompts, if there is one."""
        return None if self.replay is None else self.replay.reader

    @torch.inference_mode()
    def plain_logits(self, tokens: Sequence[int]) -> Tensor:
        """Logits [N, V] by a forward without tree or store: the reference that trees are checked against."""
        logits: Tensor = self.model(input_ids=torch.tensor([tokens], device=self.device)).logits[0]
        return logits

    @torch.inference_mode()
    def session(
        self,
        prefix: Prefix,
        room: int,
        params: SamplingParams | None = None,
        num_top: int = 0,
        rows: Sequence[int] = _ROWS,
        head_session: FeatureReader | MaskReader | None = None,
    ) -> ModelSession:
        """A session for one lane, on a clone of `prefix` with room for `room` more tokens.

        With `graphs`, one is captured here for each row count in `rows`, before any clock starts; a tree is run by the
        smallest that has enough rows. `head_session`, if given, gets the features of all tokens that are committed, or
        the logits of the masks below the last of them.
        """
        sampler = Sampler(params or SamplingParams())
        masks = masks_of(head_session)
        if masks is not None:
            # Every node of a tree may have all masks below it.
            room += max(rows) * len(masks)
            rows = row_counts(max(rows) * (1 + len(masks)))
        if self.graphs is not None:
            levels = head_session.levels if isinstance(head_session, FeatureReader) else ()
            pooled = self.graphs.acquire(prefix.store, room, rows, levels if masks is None else masks)
            return GraphedSession(self, pooled, sampler, num_top, head_session)
        store = prefix.store.clone(prefix.store.length + room + self.min_rows - 1)
        return ModelSession(self, store, sampler, num_top, head_session)

    @torch.inference_mode()
    def logits(self, store: KVStore, tree: TokenTree) -> Tensor:
        """Logits [N, V] of a tree after the tokens in `store`; its keys and values are written, but not committed."""
        return self.run(store, tree)

    def run(self, store: KVStore, tree: TokenTree) -> Tensor:
        """`logits` for callers already in inference mode: entering it takes 1% of a small model's step."""
        if self.chain_forward is not None:
            return self.chain_forward.run(store, tree)[0]
        inputs = self._fill(store, tree)
        return self.forward(store, inputs, store.length + inputs.rows)[: len(tree)]

    def run_tapped(self, store: KVStore, tree: TokenTree, levels: Levels) -> tuple[Tensor, Tensor]:
        """Logits [N, V] like `run`, and features [N, levels * d]."""
        if self.chain_forward is not None:
            return self.chain_forward.run(store, tree, levels)
        inputs, size = self._fill(store, tree), len(tree)
        logits, features = self.forward_tapped(store, inputs, store.length + inputs.rows, levels)
        return logits[:size], features[:size]

    def run_masked(self, store: KVStore, tree: TokenTree, masks: Masks) -> Tensor:
        """Logits [N, V] like `run`, of a tree with masks. Raises ValueError if the model scores chains only."""
        if self.chains_only:
            raise ValueError(f"{self.name} scores chains only")
        inputs = self._fill(store, tree)
        return self.forward_masked(store, inputs, store.length + inputs.rows, masks)[: len(tree)]

    def _fill(self, store: KVStore, tree: TokenTree) -> TreeInputs:
        """Fill input buffers with a tree that follows the committed tokens of `store`, and return them."""
        size, base = len(tree), store.length
        store.check_room(size)
        # Padding only saves time, so it is left out if there is no room.
        inputs = self.inputs(min(max(size, self.min_rows), store.capacity - base))
        inputs.fill(tree, base)
        return inputs

    def inputs(self, rows: int) -> TreeInputs:
        """The input buffers for trees of up to `rows` nodes; they are kept while MAX_MASK_ELEMENTS allows it."""
        buffers = self._inputs.pop(rows, None)
        if buffers is None:
            buffers = TreeInputs(rows, self.device, self.dtype)
            while self._inputs and rows**2 + sum(size**2 for size in self._inputs) > MAX_MASK_ELEMENTS:
                del self._inputs[next(iter(self._inputs))]
        # Added at the end, so the buffers at the beginning, which are dropped first, are the least recently used.
        self._inputs[rows] = buffers
        return buffers

    def forward(self, store: KVStore, inputs: TreeInputs, end: int) -> Tensor:
        """Logits [N, V] of a tree that sees the first `end` columns of `store`, by tensor operations only."""
        if self.replay is not None and store.data is not None:
            return self.replay(inputs.tensors, store.data[..., :end, :])
        return run_tree(self.model, store, inputs.tensors, end, self.reaches)

    def forward_tapped(self, store: KVStore, inputs: TreeInputs, end: int, levels: Levels) -> tuple[Tensor, Tensor]:
        """Logits [N, V] as by `forward`, and features [N, levels * d]."""
        if self.replay is not None and store.data is not None:
            replay, tapped = self._tapped.get(levels, (None, None))
            if replay is not self.replay or tapped is None:
                tapped = self.replay.tapped(levels)
                self._tapped[levels] = self.replay, tapped
            return tapped(inputs.tensors, store.data[..., :end, :])
        output = call_on_tree(self.model, store, inputs.tensors, end, self.reaches, output_hidden_states=True)
        return output.logits[0], features_of(output, levels, self.device)

    def forward_masked(self, store: KVStore, inputs: TreeInputs, end: int, masks: Masks) -> Tensor:
        """Logits [N, V] as by `forward`, of a tree with masks."""
        if self.replay is not None and store.data is not None:
            replay, masked = self._masked.get(masks, (None, None))
            if replay is not self.replay or masked is None:
                masked = self.replay.masked(masks)
                self._masked[masks] = self.replay, masked
            return masked(inputs.tensors, store.data[..., :end, :])
        with masks.beside(self.model):
            return run_tree(self.model, store, inputs.tensors, end, self.reaches)

    @contextmanager
    def with_reach(self, positions: int) -> Iterator[None]:
        """Inside the `with` block, the model's config limits the windows and chunks of all layers to `positions`.

        The masks can then be checked with a few tokens instead of thousands.
        """
        lengths = {name: getattr(self.config, name, None) for name in REACH_SETTINGS}
        try:
            self._set_reach({name: min(length, positions) for name, length in lengths.items() if length})
            yield
        finally:
            self._set_reach({name: length for name, length in lengths.items() if length})

    def _set_reach(self, lengths: Mapping[str, int]) -> None:
        for name, length in lengths.items():
            setattr(self.config, name, length)
        self.reaches = layer_reaches(self.config)

    @contextmanager
    def between_forwards(self) -> Iterator[None]:
        """Limit torch to one thread between forwards of the compiled decoder, which has its own threads.

        Otherwise torch's threads would spin for a while after each operation, on processors that the next forward
        needs.
        """
        threads = torch.get_num_threads()
        if threads == 1 or self.replay is None or not self.replay.own_threads:
            yield
            return
        try:
            torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)

    def synchronize(self) -> None:
        """Wait for the GPUs, so that a clock read afterwards includes all of their work."""
        if self._on_gpu:
            for device in self.devices:
                torch.cuda.synchronize(device)


def _model_name(path: str) -> str:
    """A hub id unchanged; for a folder only its name, because the path may be private."""
    return Path(path).name if Path(path).is_absolute() else path
