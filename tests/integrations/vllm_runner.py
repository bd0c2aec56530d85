"""A batch of requests as vLLM's model runner holds it and passes it to a drafter, with a model whose outputs are known.

It follows vllm-project/vllm 0.33.0: `_update_states`, `sample_tokens`, `_bookkeeping_sync`, `_input_fits_in_drafter`
and `propose_draft_token_ids` of vllm/v1/worker/gpu_model_runner.py; `add_request`, `condense` and `swap_states` of
vllm/v1/worker/gpu_input_batch.py; and the handling of drafts in vllm/v1/core/sched/scheduler.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np


def vllm_config(num_speculative_tokens: int, max_model_len: int, **specrace: Any) -> SimpleNamespace:
    """The parts of vLLM's configuration that a drafter reads; `specrace` is our additional configuration."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=num_speculative_tokens),
        model_config=SimpleNamespace(max_model_len=max_model_len, get_vocab_size=lambda: 1 << 17),
        additional_config={"specrace": specrace} if specrace else {},
    )


@dataclass
class Request:
    """A request whose model writes `truth` after `prompt`.

    The KV cache holds the first `computed` tokens. `accepted` has an entry for each step that emits tokens.
    """

    prompt: Sequence[int]
    truth: Sequence[int]
    output: list[int] = field(default_factory=list)
    computed: int = 0
    drafts: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *self.output]

    @property
    def finished(self) -> bool:
        return len(self.output) >= len(self.truth)


class Runner:
    """vLLM's persistent batch, the part of its scheduler that handles drafts, and its calls of the drafter.

    `chunk`: how many tokens of a prompt a forward reads at most. `num_tokens_no_spec`: vLLM's name for the number of
    tokens of each row without draft ("speculative") tokens.
    """

    def __init__(self, drafter: Any, num_draft: int, max_model_len: int, rows: int, chunk: int = 16) -> None:
        self.drafter, self.num_draft, self.max_model_len, self.chunk = drafter, num_draft, max_model_len, chunk
        # Rows start with tokens of earlier requests, as in vLLM, so random tokens fill them.
        self.token_ids_cpu = np.random.default_rng(0).integers(0, 9, (rows, max_model_len), np.int32)
        self.num_tokens_no_spec = np.full(rows, 5, np.int32)
        self.names: list[str | None] = []
        self.requests: dict[str, Request] = {}
        self.calls = 0

    def preempt(self, name: str) -> None:
        """Free the request's KV cache and drop its drafts."""
        self.requests[name].computed, self.requests[name].drafts = 0, []

    def step(self, scheduled: Collection[str]) -> None:
        """Run one forward over these requests, and draft for the next one."""
        self._update(scheduled)
        names = [name for name in self.names if name is not None]
        assert set(names) == set(scheduled) and len(names) == len(self.names)
        spans = {name: self._span(self.requests[name]) for name in names}
        sampled = [self._sample(self.requests[name], spans[name]) for name in names]
        longest = max(self.requests[name].computed + spans[name] for name in names)
        for row, (name, tokens) in enumerate(zip(names, sampled, strict=True)):
            request, start = self.requests[name], int(self.num_tokens_no_spec[row])
            request.computed += spans[name] - max(0, len(request.drafts) - max(0, len(tokens) - 1))
            self.token_ids_cpu[row, start : start + len(tokens)] = tokens
            self.num_tokens_no_spec[row] = start + len(tokens)
            request.output += tokens
            if tokens:
                request.accepted.append(len(tokens) - 1)
        drafts = [[0] * self.num_draft for _ in names]
        if longest + self.num_draft <= self.max_model_len:
            drafts = self._propose(sampled)
        for name, tokens, draft in zip(names, sampled, drafts, strict=True):
            # vLLM ignores the draft of a request whose prompt is only partly read.
            self.requests[name].drafts = draft if tokens else []

    def _propose(self, sampled: list[list[int]]) -> list[list[int]]:
        """Call the drafter as vLLM does, and check the types and lengths of its drafts, one for each row."""
        self.calls += 1
        drafts = self.drafter.propose(sampled, self.num_tokens_no_spec, self.token_ids_cpu, slot_mappings=None)
        assert len(drafts) == len(sampled)
        for row, draft in enumerate(drafts):
            assert type(draft) is list and {type(token) for token in draft} <= {int}
            assert len(draft) <= self.num_draft and (sampled[row] or not draft)
            assert not draft or self.num_tokens_no_spec[row] + len(draft) + 1 <= self.max_model_len
        return drafts

    def _span(self, request: Request) -> int:
        """The number of tokens that the forward reads of a request; cuts drafts that do not fit."""
        missing = len(request.tokens) - request.computed
        if missing > 1:
            request.drafts = []
            return min(missing, self.chunk)
        del request.drafts[max(0, self.max_model_len - request.computed - 1 - missing) :]
        return missing + len(request.drafts)

    def _sample(self, request: Request, span: int) -> list[int]:
        """The accepted draft tokens and one more token; none while the prompt is only partly read."""
        if request.computed + span < len(request.tokens):
            return []
        # After the end of `truth`, the model writes 7.
        truth = [*request.truth[len(request.output) :], *[7] * self.num_draft]
        accepted = 0
        while accepted < len(request.drafts) and request.drafts[accepted] == truth[accepted]:
            accepted += 1
        return truth[: accepted + 1]

    def _update(self, scheduled: Collection[str]) -> None:
        """Remove unscheduled requests and add new ones in free rows; fill gaps from the end, and put decodes first."""
        for row, name in enumerate(self.names):
            if name not in scheduled:
                self.names[row] = None
        for name in scheduled:
            if name not in self.names:
                row = self.names.index(None) if None in self.names else len(self.names)
                self.names[row : row + 1] = [name]
                tokens = self.requests[name].tokens
                self.token_ids_cpu[row, : len(tokens)] = tokens
                self.num_tokens_no_spec[row] = len(tokens)
        while None in self.names:
            last = self.names.pop()
            if last is not None:
                self._move(len(self.names), self.names.index(None))
                self.names[self.names.index(None)] = last
        self._reorder()
        for row, name in enumerate(self.names):
            assert name is not None
            start, drafts = self.num_tokens_no_spec[row], self.requests[name].drafts
            fitting = drafts[: self.max_model_len - start]
            self.token_ids_cpu[row, start : start + len(fitting)] = fitting

    def _move(self, source: int, row: int) -> None:
        """Copy the tokens of row `source` to `row`."""
        count = self.num_tokens_no_spec[source]
        self.token_ids_cpu[row, :count] = self.token_ids_cpu[source, :count]
        self.num_tokens_no_spec[row] = count

    def _reorder(self) -> None:
        """Swap rows until the requests that decode come before those that still read their prompts."""
        while True:
            requests = [self.requests[name] for name in self.names if name]
            reading = [len(request.tokens) - request.computed > 1 for request in requests]
            wrong = [row for row in range(len(reading)) if reading[row] and not all(reading[row:])]
            if not wrong:
                return
            first, last = wrong[0], max(row for row in range(len(reading)) if not reading[row])
            count = max(self.num_tokens_no_spec[[first, last]])
            for values in (self.token_ids_cpu[:, :count], self.num_tokens_no_spec):
                values[[first, last]] = values[[last, first]]
            self.names[first], self.names[last] = self.names[last], self.names[first]
