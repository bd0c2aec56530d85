"""The peers: decoders of other libraries, which the benchmark times beside our lanes.

They are transformers' own decoding (`model.generate`, plain and with its prompt lookup), and llama.cpp's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.lab.bench.benchmark import COUNTERPARTS, PeerDecoder, PeerRun
from specrace.lab.bench.llama_cpp import PREFIX, GgufWeights, LlamaCppPeer, check_llama_cpp
from specrace.model.target import Target


class TransformersPeer:
    """transformers' `target.model.generate` on the same weights, in the same process, with its own cache."""

    def __init__(self, name: str, target: Target, params: SamplingParams, **settings: int) -> None:
        self.name = name
        self.settings = settings
        self._target = target
        self._params = params

    def run(self, prompt: Sequence[int], max_new_tokens: int) -> PeerRun:
        """Generate once, timed from prompt ids to output ids."""
        config = self._config(max_new_tokens)
        streamer = _FirstTokens()
        torch.manual_seed(self._params.seed % 2**63)
        began = time.perf_counter()
        ids = torch.tensor([list(prompt)], device=self._target.device)
        with torch.inference_mode():
            output = self._target.model.generate(
                ids, attention_mask=torch.ones_like(ids), generation_config=config, streamer=streamer
            )
        tokens = tuple(output[0, len(prompt) :].tolist())
        run_ms = 1000.0 * (time.perf_counter() - began)
        return PeerRun(
            tokens=tokens,
            run_ms=run_ms,
            first_ms=1000.0 * (streamer.first_at - began),
            first_tokens=streamer.first_tokens,
        )

    def _config(self, max_new_tokens: int) -> GenerationConfig:
        """The race's sampling parameters, without those of the model's own generation config."""
        params = self._params
        eos_ids = sorted(self._target.eos_ids)
        sampling: dict[str, Any] = {"do_sample": bool(params.temperature)}
        if params.temperature:
            sampling |= {"temperature": params.temperature, "top_p": params.top_p, "top_k": params.top_k or None}
        return GenerationConfig(
            max_new_tokens=max_new_tokens,
            repetition_penalty=1.0,
            eos_token_id=eos_ids or None,
            pad_token_id=eos_ids[0] if eos_ids else 0,
            **sampling,
            **self.settings,
        )


class _FirstTokens(BaseStreamer):
    """Records when the first tokens arrive, in seconds of `perf_counter`, and how many there are."""

    def __init__(self) -> None:
        self.first_at = 0.0
        self.first_tokens = 0
        self._prompt_seen = False

    def put(self, value: Tensor) -> None:
        """Take tokens from transformers: first the prompt, then each step's."""
        if self._prompt_seen and not self.first_tokens:
            self.first_at, self.first_tokens = time.perf_counter(), value.numel()
        self._prompt_seen = True

    def end(self) -> None:
        """Required by the interface."""


def check_peers(names: Sequence[str], weights: str | None = None) -> None:
    """Raises InputError for packages or files that the peers lack; called before a model is loaded."""
    if any(name.startswith(PREFIX) for name in names):
        check_llama_cpp(weights)


def make_peers(
    names: Sequence[str],
    target: Target,
    params: SamplingParams,
    num_lookup: int,
    weights: str | None = None,
    *,
    longest: int = 3,
) -> list[PeerDecoder]:
    """The peers with these names; llama.cpp runs on `weights` (see `GgufWeights`).

    transformers' prompt lookup drafts `num_lookup` tokens after a match of at most `longest` tokens, as our lane does;
    transformers' own default is 2. Raises InputError for an unknown name, and for a peer that cannot run the target's
    model.
    """
    for name in names:
        if name not in COUNTERPARTS:
            raise InputError(f"There is no peer {name!r}; choose from {', '.join(COUNTERPARTS)}.")
        if name == "transformers-pld" and target.chains_only:
            raise InputError(
                f"transformers' prompt lookup does not run {target.name}, whose layers keep a state; leave out {name}."
            )
    lookup = {"prompt_lookup_num_tokens": num_lookup, "max_matching_ngram_size": longest}
    file = GgufWeights(target, weights) if any(name.startswith(PREFIX) for name in names) else None
    return [
        LlamaCppPeer(name, target, params, file)
        if file is not None and name.startswith(PREFIX)
        else TransformersPeer(name, target, params, **(lookup if name == "transformers-pld" else {}))
        for name in names
    ]
