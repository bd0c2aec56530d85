"""The target: any Hugging Face decoder-only language model with full attention, scored a tree at a time."""

from __future__ import annotations

import contextlib
import inspect
import os
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import torch
import transformers
from torch import Tensor

from specrace.core.clock import own_ms
from specrace.core.cost_curve import row_counts
from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores
from specrace.model.device_map import device_names, distinct, layer_devices
from specrace.model.draft_model import DraftModel
from specrace.model.graphs import GraphedStore, GraphPool
from specrace.model.kv import KVStore
from specrace.model.roofline import Roofline, copy_bandwidth, token_bytes, weight_bytes
from specrace.model.sampling import Sampler, warp
from specrace.model.traced import TracedForward, run_tree
from specrace.model.tree_inputs import TreeInputs

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Of graphs, where nobody says what will be run.
_ROWS = row_counts(65)
_CLEAR_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass(frozen=True)
class Prefix:
    """A prompt's KV without its last token, computed once and cloned into every lane."""

    store: KVStore
    ms: float


class Target:
    """A model, its tokenizer (None for a bare model), and the rules of its context.

    `drafting` is the smaller model that drafts for it, if any, or loads it when it is first needed. With `graphs`
    (a GPU) or `traced` (a CPU) forwards are replayed without Python; `loading` sets and checks them, and says
    in `eager_because` why they are not. A model may lie on several devices (`layer_devices`): tokens enter on the
    first, `device`, keys and values stay where their layer is, logits are read where they come out. Raises InputError
    for a model on several devices whose layers are not found.
    """

    def __init__(self, model: Any, tokenizer: Any = None, name: str = "") -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name or _model_name(str(model.config._name_or_path)) or type(model).__name__
        self.config = model.config.get_text_config()
        self.dtype: torch.dtype = model.dtype
        self.vocab_size: int = self.config.vocab_size
        self.num_layers: int = self.config.num_hidden_layers
        self.layer_devices = layer_devices(model, self.num_layers)
        self.device: torch.device = model.get_input_embeddings().weight.device if self.layer_devices else model.device
        self.devices = distinct((self.device, *self.layer_devices))
        self._on_gpu = self.device.type == "cuda"
        self.max_context = _max_context(self.config)
        self.eos_ids = _eos_ids(model, tokenizer)
        accepted = inspect.signature(model.forward).parameters
        self.drafting: DraftModel | Callable[[Target], DraftModel] | None = None
        self._keep_last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        # A CPU's attention is slow for a single 16-bit row: two, one of them inert, cost a quarter less.
        self._least_rows = 2 if self.device.type == "cpu" and self.dtype.itemsize == 2 else 1
        self._inputs: dict[int, TreeInputs] = {}
        self.graphs: GraphPool | None = None
        self.traced: TracedForward | None = None
        self.eager_because = "on several devices" if self.layer_devices else ""
        self.threads = 1 if self._on_gpu else torch.get_num_threads()

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int]) -> Prefix:
        """Run the prompt but its last token, which is the first step's root. Raises InputError for an empty one."""
        if not prompt:
            raise InputError("The prompt is empty; give at least one token.")
        if not 0 <= min(prompt) <= max(prompt) < self.vocab_size:
            raise InputError(
                f"The prompt has token {max(prompt)} and {self.name} has a vocabulary of {self.vocab_size}: "
                "the tokenizer belongs to another model."
            )
        began = own_ms()
        store = self.new_store(max(1, len(prompt) - 1))
        if len(prompt) > 1:
            self.read(store, prompt[:-1])
        self.synchronize()
        return Prefix(store, own_ms() - began)

    def new_store(self, capacity: int) -> KVStore:
        """An empty store for `capacity` tokens."""
        return KVStore(self.num_layers, capacity, self.layer_devices)

    def read(self, store: KVStore, tokens: Sequence[int]) -> None:
        """One forward that fills an empty `store` with `tokens`, which are committed; for callers in inference mode."""
        ids = torch.tensor([tokens], device=self.device)
        positions = torch.arange(len(tokens), device=self.device)[None]
        self.model(
            input_ids=ids, position_ids=positions, past_key_values=store.cache, use_cache=True, **self._keep_last
        )
        store.commit(len(tokens))

    @torch.inference_mode()
    def plain_logits(self, tokens: Sequence[int]) -> Tensor:
        """[N, V] as the model by itself has them, without a store of ours: what trees are checked against."""
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
    ) -> Session:
        """A lane's own session: a clone of `prefix` with room for `room` tokens more.

        With graphs, those of its `rows` are recorded here, which is before any clock starts. A tree is run with the
        next of them.
        """
        sampler = Sampler(params or SamplingParams())
        if self.graphs is not None:
            return GraphedSession(self, self.graphs.acquire(prefix.store, room, rows), sampler, num_top)
        store = prefix.store.clone(prefix.store.length + room + self._least_rows - 1)
        return Session(self, store, sampler, num_top)

    @torch.inference_mode()
    def logits(self, store: KVStore, tree: TokenTree) -> Tensor:
        """One forward over the tree behind `store`: [N, V]. The tree's KV is written but not committed."""
        return self.run(store, tree)

    def run(self, store: KVStore, tree: TokenTree) -> Tensor:
        """As `logits`, for callers in inference mode: to enter it costs a hundredth of a small model's step."""
        size, base = len(tree), store.length
        store.check_room(size)
        # Where the cache has no room for padding there is none: it only saves time.
        inputs = self.inputs(min(max(size, self._least_rows), store.capacity - base))
        inputs.fill(tree, base)
        return self.forward(store, inputs, base + inputs.rows)[:size]

    def inputs(self, rows: int) -> TreeInputs:
        """The buffers for trees of up to `rows` nodes, made once."""
        if rows not in self._inputs:
            self._inputs[rows] = TreeInputs(rows, self.device, self.dtype)
        return self._inputs[rows]

    def forward(self, store: KVStore, inputs: TreeInputs, end: int) -> Tensor:
        """The model over `inputs`, which sees the first `end` columns of `store`: [N, V]. Tensor operations only."""
        if self.traced is not None and store.data is not None:
            return self.traced(inputs.tensors, store.data[..., :end, :])
        return run_tree(self.model, store, inputs.tensors, end)

    def use_threads(self, count: int) -> None:
        """Let the forwards of this thread use so many processors; nothing on a GPU, and where there is no choice."""
        if self.threads > 1:
            torch.set_num_threads(count)

    def draft_model(self) -> DraftModel | None:
        """The smaller model that drafts for this one, if any. Raises InputError where it cannot be used."""
        if callable(self.drafting):
            self.drafting = self.drafting(self)
        return self.drafting

    def synchronize(self) -> None:
        """Wait for the devices, so that a clock that is read next has seen all the work."""
        if self._on_gpu:
            for device in self.devices:
                torch.cuda.synchronize(device)

    @cached_property
    def roofline(self) -> Roofline:
        """The least time of a step on this device, whose bandwidth is measured at the first call (a tenth second).

        Of several devices on the first: a step passes through them in turn, so their bandwidths do not add up.
        """
        kv = token_bytes(self.config, self.dtype.itemsize)
        return Roofline(weight_bytes(self.model), kv, copy_bandwidth(self.device))

    def step_limit_ms(self, columns: float, rows: float) -> float:
        """Time in which the device copies the bytes that a step of `rows` over so many cache columns must move."""
        return self.roofline.limit_ms(columns, rows)

    def reset_peak_memory(self) -> None:
        """Let `peak_memory` begin anew."""
        if self.device.type == "cuda":
            for device in self.devices:
                torch.cuda.reset_peak_memory_stats(device)
        elif _CLEAR_PEAK.exists():
            with contextlib.suppress(OSError):
                # 5: the peak of the resident set is now its size (proc(5)).
                _CLEAR_PEAK.write_text("5")

    def peak_memory(self) -> int | None:
        """Most bytes in use since the reset: of the devices, on a CPU of the whole process; None where unknown."""
        if self.device.type == "cuda":
            return sum(int(torch.cuda.max_memory_allocated(device)) for device in self.devices)
        found = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
        return 1024 * int(found[1]) if found else None

    @torch.inference_mode()
    def top_two(self, tokens: Sequence[int], params: SamplingParams | None = None) -> tuple[tuple[int, int], float]:
        """The two tokens that `params` chose between after `tokens`, its choice first, and their gap.

        Greedily in logits; under sampling in logits over the temperature with the noise of that position, and where
        top-k or top-p leave one token only, without the noise: then it is that cut which decided.
        """
        params = params or SamplingParams()
        prefix = self.prefill(tokens)
        logits = self.logits(prefix.store.clone(len(tokens)), TokenTree.chain(tokens[-1]))
        values, ids = Sampler(params).compared(logits, [len(tokens)])[0].topk(2)
        if values[1] == -torch.inf:
            values, ids = (logits[0].float() / params.temperature).topk(2)
        return (int(ids[0]), int(ids[1])), float(values[0] - values[1])

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""
        return self.device.type

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special ones by name; numbers where there is no tokenizer."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        text: str = self.tokenizer.decode(list(tokens))
        return text

    @property
    def engine(self) -> str:
        """How forwards run: "CUDA graphs", "TorchScript" (with or without packed weights), or "eager", and why that."""
        if self.graphs is not None:
            return "CUDA graphs"
        if self.traced is not None:
            return self.traced.name
        return f"eager ({self.eager_because})" if self.eager_because else "eager"

    def describe(self) -> dict[str, Any]:
        """What a figure needs beside it: model, size, dtype, device, versions."""
        return {
            "model": self.name,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": device_names(self.devices),
            "graphs": self.graphs is not None,
            "engine": self.engine,
            "threads": torch.get_num_threads(),
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        """Raises InputError if the prompt with its answer and a draft would not fit the model's context."""
        needed = prompt_tokens + max_new_tokens + num_draft
        if needed > self.max_context:
            raise InputError(
                f"The prompt has {prompt_tokens} tokens; with {max_new_tokens} new ones and drafts of {num_draft} "
                f"that is {needed}, and {self.name} takes {self.max_context}: use fewer or shorter documents, or fewer "
                "new tokens."
            )


class Session:
    """A lane's side of the target: its cache, its sampler."""

    def __init__(self, target: Target, store: KVStore, sampler: Sampler, num_top: int = 0) -> None:
        self.target, self.store, self.sampler, self.num_top = target, store, sampler, num_top

    @torch.inference_mode()
    def logits(self, tree: TokenTree) -> Tensor:
        """[N, V] by one forward."""
        return self.run(tree)

    def run(self, tree: TokenTree) -> Tensor:
        """The same, for callers in inference mode."""
        return self.target.run(self.store, tree)

    @torch.inference_mode()
    def score(self, tree: TokenTree) -> Scores:
        """The target's token at every node: one forward, one copy to the host."""
        logits = self.run(tree)
        base = self.store.length + 1
        targets = self.sampler.choose(logits, [base + depth for depth in tree.depths])
        if not self.num_top:
            return Scores(tuple(targets.tolist()))
        top = logits.topk(min(self.num_top, logits.shape[-1]), dim=-1).indices
        both = torch.cat([targets[:, None], top], dim=-1).tolist()
        return Scores(tuple(row[0] for row in both), tuple(tuple(row[1:]) for row in both))

    @torch.inference_mode()
    def score_distributions(self, tree: TokenTree) -> np.ndarray:
        """The target's warped distribution at every node, float64 [N, V]; greedy is all on the best token."""
        logits = self.run(tree).float()
        probs: np.ndarray = warp(logits, self.sampler.params).double().softmax(dim=-1).cpu().numpy()
        return probs

    def keep(self, path: Sequence[int]) -> None:
        """Keep the KV of the accepted nodes; the rest is written over."""
        self.store.keep(path)
        self.target.synchronize()


class GraphedSession(Session):
    """A session on a pooled store, whose forwards are replayed where they were recorded."""

    def __init__(self, target: Target, pooled: GraphedStore, sampler: Sampler, num_top: int = 0) -> None:
        super().__init__(target, pooled.store, sampler, num_top)
        self._pooled = pooled
        # The lane drops its session when it is done; the store and its graphs serve the next one.
        finalize(self, pooled.release)

    def run(self, tree: TokenTree) -> Tensor:
        """[N, V]; they hold until the next forward on any graphed session."""
        replayed = self._pooled.logits(tree)
        return super().run(tree) if replayed is None else replayed


def use_processors(threads: int | None, spare: int) -> None:
    """Let forwards of this thread use so many processors; None: at most all that the process may, but `spare`.

    Threads wait for each other, and all of them for one whose processor does something else.
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(threads or min(torch.get_num_threads(), max(1, mine - spare)))


def _model_name(path: str) -> str:
    """A hub id as it is, of a folder its name: where that lies is the machine's own affair."""
    return Path(path).name if Path(path).is_absolute() else path


def _max_context(config: Any) -> int:
    """Tokens that the model takes; a sliding window counts as the limit, since inside it attention is full."""
    longest = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 1 << 20
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    slides = {"sliding_attention", "local"} & set(kinds) if kinds else getattr(config, "use_sliding_window", True)
    window = getattr(config, "sliding_window", None) or getattr(config, "window_size", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Past its first length it turns every key another way, so a draft that reaches over would score otherwise.
        longest = min(longest, rope.get("original_max_position_embeddings") or longest)
    return min(longest, window) if window and slides else int(longest)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, by the generation config, the config and the tokenizer."""
    found: set[int] = set()
    generation = getattr(model, "generation_config", None)
    for ids in (getattr(generation, "eos_token_id", None), model.config.eos_token_id):
        found |= set(ids) if isinstance(ids, (list, tuple)) else {ids} if ids is not None else set()
    if not found and tokenizer is not None and tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    return frozenset(found)
