"""The target: the model that is accelerated, and everything besides its scores that a race needs to know about it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers

from specrace.core.errors import InputError
from specrace.core.processors import processor_name
from specrace.core.sampling_params import SamplingParams
from specrace.core.tree import TokenTree
from specrace.model.draft_model import DraftModel
from specrace.model.limits import eos_ids
from specrace.model.machine.device_map import device_names
from specrace.model.machine.memory import peak_memory, reset_peak_memory
from specrace.model.machine.roofline import Roofline, copy_bandwidth, weight_bytes
from specrace.model.sampling import Sampler
from specrace.model.scorer import INT8, Scorer
from specrace.model.state_copies import StateCopies

# The folder of a model's own masks, in its folder.
MASKS = "masks"


class Target(Scorer):
    """A scorer with end tokens, a description of itself, and perhaps draft models.

    `drafting` is the draft model, or a function that loads it at first use; `more_drafting` has further ones. `heads`:
    lane -> its trained head, set by `specrace.heads.loading`. `prompt_style` names the style that the model's adapter
    was trained on, if it has an adapter. `int8` says that the weights were rounded to 8 bits. `fingerprint` identifies
    the weights before such rounding; "" if it is not known. `own_masks`: the folder of the masks that the model was
    trained with, if there is one.
    """

    def __init__(
        self, model: Any, tokenizer: Any = None, name: str = "", prompt_style: str = "", *, int8: bool = False
    ) -> None:
        super().__init__(model, tokenizer, name)
        self.prompt_style = prompt_style
        self.int8 = int8
        self.fingerprint = ""
        self.eos_ids = eos_ids(model, tokenizer)
        self.drafting: DraftModel | Callable[[Target], DraftModel] | None = None
        self.more_drafting: tuple[DraftModel, ...] = ()
        self.heads: dict[str, Any] = {}
        self.own_masks: Path | None = None
        # How many threads forwards use; with 1, `use_threads` changes nothing.
        self.threads = 1 if self.device.type == "cuda" else torch.get_num_threads()

    @property
    def device_type(self) -> str:
        """ "cpu" or "cuda"."""
        return self.device.type

    def use_threads(self, count: int) -> None:
        """Let the forwards of this thread use `count` threads; no effect on a GPU or for a target with one thread."""
        if self.threads > 1:
            torch.set_num_threads(count)

    def draft_models(self) -> tuple[DraftModel, ...]:
        """The smaller models that draft for this one, in order. Raises InputError if one cannot be used."""
        if callable(self.drafting):
            self.drafting = self.drafting(self)
        return () if self.drafting is None else (self.drafting, *self.more_drafting)

    def head(self, lane: str) -> Any:
        """The trained head with which a lane drafts (`specrace.drafters.base.Head`); None if it has none."""
        return self.heads.get(lane)

    def state_copies(self) -> StateCopies:
        """Copies by this target's hidden states, with the interface of a head."""
        return StateCopies(self)

    def check_length(self, prompt_tokens: int, max_new_tokens: int, num_draft: int) -> None:
        """Raises InputError if the prompt, its answer and a draft do not fit into the model's context."""
        needed = prompt_tokens + max_new_tokens + num_draft
        if needed > self.max_context:
            raise InputError(
                f"The prompt has {prompt_tokens} tokens; with {max_new_tokens} new ones and drafts of {num_draft} "
                f"that is {needed}, and {self.name} takes {self.max_context}: use fewer passages (--passages), shorter "
                "documents or fewer new tokens."
            )

    @torch.inference_mode()
    def top_two(self, tokens: Sequence[int], params: SamplingParams | None = None) -> tuple[tuple[int, int], float]:
        """The two best tokens after `tokens` under `params`, the chosen one first, and the gap between them.

        A small gap is a near tie, at which rounding may decide. `params` None: greedy.

        Greedy decoding compares logits. Sampling compares logits / temperature plus the noise of that position. If
        top-k or top-p leave only one token, noise decides nothing, and logits / temperature are compared.
        """
        params = params or SamplingParams()
        prefix = self.prefill(tokens)
        logits = self.logits(prefix.store.clone(len(tokens)), TokenTree.chain(tokens[-1]))
        values, ids = Sampler(params).perturbed(logits, [len(tokens)])[0].topk(2)
        if values[1] == -torch.inf:
            values, ids = (logits[0].float() / params.temperature).topk(2)
        return (int(ids[0]), int(ids[1])), float(values[0] - values[1])

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, special tokens by name; numbers if there is no tokenizer."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        text: str = self.tokenizer.decode(list(tokens))
        return text

    @property
    def forward_kind(self) -> str:
        """How forwards run: "CUDA graphs", "compiled decoder", "TorchScript" (perhaps packed), or "eager" and why."""
        if self.graphs is not None:
            return "CUDA graphs"
        if self.replay is not None:
            return self.replay.name
        return f"eager ({self.eager_because})" if self.eager_because else "eager"

    def describe(self) -> dict[str, Any]:
        """The facts to state with any measurement: model, size, dtype, device, processor, versions."""
        # The compiled decoder is not part of torch; without it torch's version says what runs.
        decoder = {"decoder": self.replay.version} if self.replay is not None and self.replay.version else {}
        return {
            "model": self.name,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "dtype": INT8 if self.int8 else str(self.dtype).removeprefix("torch."),
            "device": device_names(self.devices),
            "processor": processor_name(),
            "graphs": self.graphs is not None,
            "engine": self.forward_kind,
            "threads": torch.get_num_threads(),
            **({"heads": {lane: head.label for lane, head in self.heads.items()}} if self.heads else {}),
            "versions": {
                "python": platform.python_version(),
                # torch's version is a subclass of str, which recordings cannot store.
                "torch": str(torch.__version__),
                "transformers": transformers.__version__,
                **decoder,
            },
        }

    @cached_property
    def roofline(self) -> Roofline:
        """The shortest time of a step on this device; measures its bandwidth at the first call (a tenth of a second).

        With several devices the first one is measured: a step visits them in turn, so bandwidths do not add up.
        """
        # The model itself holds 8-bit weights in its own dtype.
        weights = weight_bytes(self.model) // (self.dtype.itemsize if self.int8 else 1)
        # A token's bytes are read from a store: layers may differ in their heads or share keys, and configs say so in
        # many ways.
        return Roofline(weights, self.prefill([0, 0]).store.token_bytes, copy_bandwidth(self.device))

    def measure_bandwidth(self) -> None:
        """Measure the bandwidth of a CPU again, because other work may share it; a GPU's does not change."""
        if self.device.type == "cpu":
            # Replaces the cached value.
            self.roofline = replace(self.roofline, bandwidth=copy_bandwidth(self.device))

    def step_limit_ms(self, columns: float, rows: float) -> float:
        """How long the device takes to copy the bytes of a step of `rows` rows after `columns` cached tokens."""
        return self.roofline.limit_ms(columns, rows)

    def reset_peak_memory(self) -> None:
        """Restart the measurement of `peak_memory`."""
        reset_peak_memory(self.devices)

    def peak_memory(self) -> int | None:
        """The maximum bytes in use since the reset (see `machine.peak_memory`)."""
        return peak_memory(self.devices)
