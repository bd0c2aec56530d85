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
from typing import Any

import numpy as np

from specrace.core.cost_curve import ASSUMED_GPU, CostCurve
from specrace.core.errors import InputError, shorten
from specrace.core.tree import TokenTree
from specrace.core.verify import Scores, Verdict
from specrace.drafters import Drafter, DrafterInputs, find_method
from specrace.drafters.base import draft

LANE = "fusion"
# Options that vLLM decides: it verifies chains only, and gives us neither documents nor outputs of earlier requests.
FIXED = {"chain": True, "corpus": False, "past": False}
# The key in vLLM's --additional-config.
SETTINGS, CURVE = "specrace", "cost_curve"
# The target's token at nodes off the accepted path.
UNKNOWN = -1


class Fusion:
    """Drafts a chain for each request of a batch. Raises InputError for settings that fusion does not have.

    Settings: `--additional-config '{"specrace": {"longest": 8, "cost_curve": {"rows": [...], "ratio": [...]}}}'`, with
    fusion's options and the cost curve by which it cuts its drafts; the default is the curve assumed for a GPU.
    """

    # How many tokens of requests outside the batch are kept, latest requests first: preempted requests come back.
    MAX_WAITING_TOKENS = 2**17

    def __init__(self, vllm_config: Any) -> None:
        self.num_draft = int(vllm_config.speculative_config.num_speculative_tokens)
        self.max_tokens = int(vllm_config.model_config.max_model_len)
        self.vocab_size = int(vllm_config.model_config.get_vocab_size())
        settings = _read_settings(vllm_config.additional_config)
        self.curve = _read_curve(settings.pop(CURVE, None))
        method = find_method(LANE)
        self.options = method.defaults("cuda") | method.check(settings) | FIXED
        # In the order in which they last got a draft.
        self.requests: list[Request] = []

    def load_model(self, target_model: Any) -> None:
        """Do nothing: there is no model to load. vLLM's runner for CPUs calls this without asking (0.32.0)."""

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
        `num_tokens_no_spec` [rows] are valid, including the tokens sampled last. Both may have more rows, left over
        from earlier requests.
        """
        waiting: dict[int, list[Request]] = {}
        for request in self.requests:
            waiting.setdefault(len(request.tokens), []).append(request)
        drafts = list[list[int]]()
        in_batch = list[Request]()
        for row, sampled in enumerate(sampled_token_ids):
            if not len(sampled):
                drafts.append([])
                continue
            tokens = token_ids_cpu[row, : int(num_tokens_no_spec[row])]
            request = _take_continued(waiting, tokens, list(sampled)) or self._new_request(tokens)
            request.tokens = tokens.copy()
            drafts.append(request.draft(self.num_draft, self.max_tokens))
            in_batch.append(request)
        self._forget(waiting, in_batch)
        return drafts

    def _new_request(self, tokens: np.ndarray) -> Request:
        """A request that is new, or of which a step was missed."""
        inputs = DrafterInputs(tuple(tokens.tolist()), self.vocab_size, curve=self.curve.near(len(tokens)))
        drafter = find_method(LANE).build(inputs, **self.options)
        return Request(tokens, drafter, TokenTree.chain(int(tokens[-1])))

    def _forget(self, waiting: Mapping[int, Sequence[Request]], in_batch: Sequence[Request]) -> None:
        """Forget all requests but those `in_batch` and the latest `waiting` ones, up to `MAX_WAITING_TOKENS` tokens."""
        waiting_ids = {id(request) for requests in waiting.values() for request in requests}
        kept = list[Request]()
        room = self.MAX_WAITING_TOKENS
        for request in reversed(self.requests):
            if id(request) in waiting_ids:
                room -= len(request.tokens)
                if room >= 0:
                    kept.append(request)
        self.requests = [*reversed(kept), *in_batch]


@dataclass
class Request:
    """A request: its `tokens` [n], prompt and output, and the `tree` that was drafted after them."""

    tokens: np.ndarray
    drafter: Drafter
    tree: TokenTree

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

    def observe(self, sampled: Sequence[int]) -> None:
        """Show the drafter the tokens sampled last: the accepted ones of its draft, and the bonus token."""
        targets = (*sampled, *[UNKNOWN] * (len(self.tree) - len(sampled)))
        self.drafter.observe(self.tree, Verdict(tuple(range(len(sampled))), sampled[-1], Scores(targets)))


def _take_continued(waiting: Mapping[int, list[Request]], tokens: np.ndarray, sampled: list[int]) -> Request | None:
    """Remove the request that `tokens` continue from `waiting`, and let it observe `sampled`; None if there is none.

    `waiting`: length -> requests. Requests with equal tokens are interchangeable.
    """
    candidates = waiting.get(len(tokens) - len(sampled), [])
    for index, request in enumerate(candidates):
        if request.continues(tokens, sampled):
            del candidates[index]
            request.observe(sampled)
            return request
    return None


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
