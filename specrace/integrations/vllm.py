"""Fusion as a drafter of vLLM, by its option for a class of one's own.

    --speculative-config '{"method": "custom_class", "model": "specrace.integrations.vllm.Fusion",
                           "num_speculative_tokens": 8}'

Protocol: vllm-project/vllm 0.33.0 (pull request 39487), vllm/v1/spec_decode/custom_class_proposer.py, and in
vllm/v1/worker/gpu_model_runner.py `propose_draft_token_ids` and `_bookkeeping_sync`. A row of the batch has no name:
requests join, leave and change rows between two calls, so each is recognised by its tokens.
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
# What fusion drafts from, or how, that vLLM does not let a drafter choose: it verifies chains, and has no documents.
FIXED = {"chain": True, "corpus": False, "past": False}
# The key in vLLM's --additional-config.
SETTINGS, CURVE = "specrace", "cost_curve"
# The target's token at nodes off the accepted path.
UNKNOWN = -1


class Fusion:
    """Drafts a chain for each request of a batch. Raises InputError for settings that fusion does not have.

    Settings: `--additional-config '{"specrace": {"longest": 8, "cost_curve": {"rows": [...], "ratio": [...]}}}'`, with
    fusion's options and the cost curve that it cuts its drafts by; by default the one assumed for a GPU.
    """

    # Tokens kept of requests that are in no row, the latest first: preempted ones come back, finished ones do not.
    KEPT = 2**17

    def __init__(self, vllm_config: Any) -> None:
        self.num_draft = int(vllm_config.speculative_config.num_speculative_tokens)
        self.max_tokens = int(vllm_config.model_config.max_model_len)
        self.vocab_size = int(vllm_config.model_config.get_vocab_size())
        given = _settings(vllm_config.additional_config)
        self.curve = _curve(given.pop(CURVE, None))
        method = find_method(LANE)
        self.options = method.defaults("cuda") | method.check(given) | FIXED
        # The latest drafted for last.
        self.requests: list[Request] = []

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: np.ndarray,
        token_ids_cpu: np.ndarray,
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """A draft for each row of `sampled_token_ids`: at most `num_speculative_tokens`, within `max_model_len`.

        `sampled_token_ids`: what a row's last step emitted, nothing while its prompt is read, which gets no draft.
        `token_ids_cpu` [rows, max_model_len]: prompt and output, `num_tokens_no_spec` [rows] of them, the tokens
        sampled last included. Both may have more rows, left over from requests before.
        """
        waiting: dict[int, list[Request]] = {}
        for request in self.requests:
            waiting.setdefault(len(request.tokens), []).append(request)
        drafts, drafted = list[list[int]](), list[Request]()
        for row, sampled in enumerate(sampled_token_ids):
            if not len(sampled):
                drafts.append([])
                continue
            tokens = token_ids_cpu[row, : int(num_tokens_no_spec[row])]
            request = _continued(waiting, tokens, list(sampled)) or self._started(tokens)
            request.tokens = tokens.copy()
            drafts.append(request.draft(self.num_draft, self.max_tokens))
            drafted.append(request)
        self._keep(waiting, drafted)
        return drafts

    def _started(self, tokens: np.ndarray) -> Request:
        """A request that was not seen before, or of which a step was not."""
        inputs = DrafterInputs(tuple(tokens.tolist()), self.vocab_size, curve=self.curve.near(len(tokens)))
        drafter = find_method(LANE).build(inputs, **self.options)
        return Request(tokens, drafter, TokenTree.chain(int(tokens[-1])))

    def _keep(self, waiting: Mapping[int, Sequence[Request]], drafted: Sequence[Request]) -> None:
        """Keep the requests `drafted` for, and the latest of those `waiting` up to `KEPT` tokens."""
        left = {id(request) for requests in waiting.values() for request in requests}
        kept, room = list[Request](), self.KEPT
        for request in reversed(self.requests):
            room -= len(request.tokens) if id(request) in left else 0
            if id(request) in left and room >= 0:
                kept.append(request)
        self.requests = [*reversed(kept), *drafted]


@dataclass
class Request:
    """A request by its `tokens` [n], prompt and output, and the `tree` that was drafted after them."""

    tokens: np.ndarray
    drafter: Drafter
    tree: TokenTree

    def draft(self, num_draft: int, max_tokens: int) -> list[int]:
        """The draft of this step, which leaves room for the bonus token within `max_tokens`."""
        # Fusion reads no more of its context than the last two tokens.
        context, room = self.tokens[-2:].tolist(), max_tokens - len(self.tokens)
        self.tree = draft(self.drafter, context, num_draft, room)
        return list(self.tree.tokens[1:])

    def continues(self, tokens: np.ndarray, sampled: Sequence[int]) -> bool:
        """Whether `tokens`, which end in those `sampled`, are these after a step that verified the draft."""
        accepted = len(sampled) - 1
        if list(self.tree.tokens[1 : 1 + accepted]) != sampled[:accepted]:
            return False
        return np.array_equal(self.tokens, tokens[: len(tokens) - len(sampled)])

    def observe(self, sampled: Sequence[int]) -> None:
        """Hand the drafter the tokens sampled last: those accepted of its draft, and one more."""
        targets = (*sampled, *[UNKNOWN] * (len(self.tree) - len(sampled)))
        self.drafter.observe(self.tree, Verdict(tuple(range(len(sampled))), sampled[-1], Scores(targets)))


def _continued(waiting: Mapping[int, list[Request]], tokens: np.ndarray, sampled: list[int]) -> Request | None:
    """The request that `tokens` continue, taken from those `waiting` by their length, after it has observed `sampled`.

    Of several with equal tokens any one does.
    """
    candidates = waiting.get(len(tokens) - len(sampled), [])
    for place, request in enumerate(candidates):
        if request.continues(tokens, sampled):
            del candidates[place]
            request.observe(sampled)
            return request
    return None


def _settings(additional: Any) -> dict[str, Any]:
    """Ours of vLLM's additional configuration. Raises InputError."""
    given = additional.get(SETTINGS, {}) if isinstance(additional, dict) else {}
    if not isinstance(given, dict):
        raise InputError(f'--additional-config: "{SETTINGS}" is {shorten(given)}; give a JSON object of options.')
    for name, value in FIXED.items():
        if given.get(name, value) != value:
            raise InputError(f"In vLLM fusion.{name} is {str(value).lower()}; leave it out of --additional-config.")
    return dict(given)


def _curve(given: Any) -> CostCurve:
    """A cost curve of rows and ratio. Raises InputError."""
    if given is None:
        return ASSUMED_GPU
    try:
        return CostCurve.from_json(given)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f'{SETTINGS}.{CURVE} is {shorten(given)}; give {{"rows": [1, 2], "ratio": [1.0, 1.1]}}.'
        ) from error
