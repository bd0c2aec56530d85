"""Fusion as a drafter in vLLM, through vLLM's option for a custom proposer class.

    --speculative-config '{"method": "custom_class", "model": "specrace.integrations.vllm.Fusion",
                           "num_speculative_tokens": 8}'

Protocol: vllm-project/vllm 0.33.0 (pull request 39487), vllm/v1/spec_decode/custom_class_proposer.py, and in
vllm/v1/worker/gpu_model_runner.py `propose_draft_token_ids` and `_bookkeeping_sync`. The rows of a batch have no
request ids, and requests join, leave and change rows between two calls, so each request is recognised by its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.drafters import DrafterInputs, find_method
from specrace.drafters.base import AdjustableDrafter, draft
from specrace.ngrams.past import PastOutputs

LANE = "fusion"
# Options that vLLM decides: it verifies chains only, and gives us no documents.
FIXED = {"chain": True, "corpus": False}
# The option to draft from earlier answers. It is off by default, because with it the speed of one request reveals
# something about the answers to others.
PAST = "past"
# The key in vLLM's --additional-config.
SETTINGS, CURVE = "specrace", "cost_curve"
# Stands for the target's tokens at nodes off the accepted path, which vLLM does not report.
UNKNOWN = -1


class Fusion:
    """Drafts a chain for each request of a batch. Raises InputError for settings that fusion does not have.

    Settings: `--additional-config '{"specrace": {"longest": 8, "cost_curve": {"rows": [...], "ratio": [...]}}}'`, with
    fusion's options and the cost curve by which it cuts its drafts; the default is the curve assumed for a GPU. With
    `"past": true` it also drafts from the answers to earlier requests, the latest 64 at most.
    """

    # How many tokens of requests outside the batch are kept, the latest requests first: a preempted request may come
    # back. A guess; not tuned.
    MAX_WAITING_TOKENS = 2**17
    # How many tokens of earlier prompts and answers are kept for drafting. Beyond that, the older half is dropped and
    # the rest is indexed anew, for which vLLM waits about 1 us per token.
    MAX_PAST_TOKENS = 2**16

    def __init__(self, vllm_config: Any) -> None:
        self.num_draft = int(vllm_config.speculative_config.num_speculative_tokens)
        self.max_tokens = int(vllm_config.model_config.max_model_len)
        self.vocab_size = int(vllm_config.model_config.get_vocab_size())
        settings = _read_settings(vllm_config.additional_config)
        self.curve = _read_curve(settings.pop(CURVE, None))
        method = find_method(LANE)
        self.options: dict[str, Any] = method.defaults("cuda") | {PAST: False} | method.check(settings) | FIXED
        self.past = PastOutputs() if self.options[PAST] else None
        # In the order in which they last got a draft.
        self.requests: list[Request] = []

    def load_model(self, target_model: Any) -> None:
        """Do nothing: there is no model to load, but vLLM's runner for CPUs calls this anyway (0.32.0)."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Draft for each row at most `num_speculative_tokens` tokens that fit into `max_model_len`.

        `sampled_token_ids`: the tokens that each row's last step emitted; none while its prompt is still being read.
        Such a row gets no draft. `token_ids_cpu` [rows, max_model_len]: prompt and output, of which the first
        `num_tokens_no_spec` [rows] are valid, including the tokens sampled last. These two arrays may have more rows,
        left over from earlier requests.
        """
        rows = {
            row: token_ids_cpu[row, : int(num_tokens_no_spec[row])].copy()
            for row, sampled in enumerate(sampled_token_ids)
            if len(sampled)
        }
        waiting: dict[int, list[Request]] = {}
        for request in self.requests:
            waiting.setdefault(len(request.tokens), []).append(request)
        continued = {row: self._take_continued(waiting, rows[row], list(sampled_token_ids[row])) for row in rows}
        # The requests that left the batch are kept before new ones start, which may then draft from them.
        self._keep_answers(waiting)
        drafts = list[list[int]]([] for _ in sampled_token_ids)
        in_batch = list[Request]()
        for row, tokens in rows.items():
            request = continued[row] or self._new_request(tokens, len(sampled_token_ids[row]))
            drafts[row] = self._draft(request, len(rows))
            in_batch.append(request)
        self._forget(waiting, in_batch)
        return drafts

    def _take_continued(
        self, waiting: Mapping[int, list[Request]], tokens: np.ndarray, sampled: list[int]
    ) -> Request | None:
        """The request that these `tokens` continue, after it has observed `sampled`; None if there is none.

        It is removed from `waiting` (length -> requests). Requests with equal tokens are interchangeable.
        """
        candidates = waiting.get(len(tokens) - len(sampled), [])
        for index, request in enumerate(candidates):
            if request.continues(tokens, sampled):
                del candidates[index]
                # While it was outside the batch, answers may have been added.
                self._read_past(request)
                request.observe(tokens, sampled)
                return request
        return None

    def _new_request(self, tokens: np.ndarray, num_sampled: int) -> Request:
        """Start a request for a row that continues no known one: it is new, or one of its steps was missed."""
        inputs = DrafterInputs(tuple(tokens.tolist()), self.vocab_size, past=() if self.past is None else self.past)
        drafter = cast(AdjustableDrafter, find_method(LANE).build(inputs, **self.options))
        return Request(tokens, drafter, TokenTree.chain(int(tokens[-1])), len(tokens) - num_sampled)

    def _draft(self, request: Request, batch: int) -> list[int]:
        """Draft the next step of a request in a batch of this size."""
        self._read_past(request)
        if request.batch != batch:
            request.batch = batch
            near = self.curve.near(len(request.tokens))
            request.drafter.change_curve(_curve_in_batch(near, batch, self.num_draft + 1))
        return request.draft(self.num_draft, self.max_tokens)

    def _read_past(self, request: Request) -> None:
        """With the option `past`, let a request's drafter read the earlier answers."""
        if self.past:
            request.drafter.read_past(self.past)

    def _keep_answers(self, waiting: Mapping[int, Sequence[Request]]) -> None:
        """With the option `past`, add what requests outside the batch have generated to the earlier answers."""
        if self.past is None:
            return
        for requests in waiting.values():
            for request in requests:
                # A request that comes back after a preemption is added in parts.
                start, request.num_kept = request.num_kept, len(request.tokens)
                if start < len(request.tokens) <= self.MAX_PAST_TOKENS:
                    self.past.add(request.tokens[start:].tolist(), request.tokens[:start].tolist())
        while self.past.num_tokens > self.MAX_PAST_TOKENS:
            self.past.drop_older_half()

    def _forget(self, waiting: Mapping[int, Sequence[Request]], in_batch: Sequence[Request]) -> None:
        """Forget all requests but those `in_batch` and the latest `waiting` ones, up to `MAX_WAITING_TOKENS` tokens."""
        waiting_ids = {id(request) for requests in waiting.values() for request in requests}
        kept_waiting = list[Request]()
        tokens_left = self.MAX_WAITING_TOKENS
        for request in reversed(self.requests):
            if id(request) in waiting_ids:
                tokens_left -= len(request.tokens)
                if tokens_left >= 0:
                    kept_waiting.append(request)
        self.requests = [*reversed(kept_waiting), *in_batch]


@dataclass
class Request:
    """A request: its `tokens` [n], prompt and output, and the `tree` that was drafted after them.

    The first `num_kept` tokens are the prompt, or have already been added to the earlier answers. `batch`: the batch
    size to which its drafter's cost curve is adjusted.
    """

    tokens: np.ndarray
    drafter: AdjustableDrafter
    tree: TokenTree
    num_kept: int
    batch: int = 0

    def draft(self, num_draft: int, max_tokens: int) -> list[int]:
        """Draft the next step, leaving room for the bonus token within `max_tokens`."""
        # Fusion reads only the last two tokens of its context.
        context = self.tokens[-2:].tolist()
        room = max_tokens - len(self.tokens)
        self.tree = draft(self.drafter, context, num_draft, room)
        return list(self.tree.tokens[1:])

    def continues(self, tokens: np.ndarray, sampled: Sequence[int]) -> bool:
        """Whether `tokens` are this request's after a step that verified its draft and emitted the `sampled` ones."""
        accepted = len(sampled) - 1
        if list(self.tree.tokens[1 : 1 + accepted]) != sampled[:accepted]:
            return False
        return np.array_equal(self.tokens, tokens[: len(tokens) - len(sampled)])

    def observe(self, tokens: np.ndarray, sampled: Sequence[int]) -> None:
        """Show the drafter the tokens sampled last: the accepted ones of its draft, and the bonus token."""
        targets = (*sampled, *[UNKNOWN] * (len(self.tree) - len(sampled)))
        self.drafter.observe(self.tree, Verdict(tuple(range(len(sampled))), sampled[-1], Scores(targets)))
        self.tokens = tokens


@lru_cache(maxsize=256)
def _curve_in_batch(curve: CostCurve, batch: int, max_rows: int) -> CostCurve:
    """`CostCurve.in_batch`, computed once for all requests and steps."""
    return curve.in_batch(batch, max_rows)


def _read_settings(additional_config: Any) -> dict[str, Any]:
    """Our part of vLLM's additional configuration. Raises InputError for a bad one."""
    settings = additional_config.get(SETTINGS, {}) if isinstance(additional_config, dict) else {}
    if not isinstance(settings, dict):
        raise InputError(f'--additional-config: "{SETTINGS}" is {shorten(settings)}; give a JSON object of options.')
    for name, value in FIXED.items():
        if settings.get(name, value) != value:
            raise InputError(f"In vLLM fusion.{name} is {str(value).lower()}; leave it out of --additional-config.")
    return dict(settings)


def _read_curve(curve: Any) -> CostCurve:
    """A cost curve from its rows and ratio; the assumed one for None. Raises InputError."""
    if curve is None:
        return ASSUMED_GPU
    try:
        return CostCurve.from_json(curve)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f'{SETTINGS}.{CURVE} is {shorten(curve)}; give {{"rows": [1, 2], "ratio": [1.0, 1.1]}}.'
        ) from error
