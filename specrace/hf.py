"""Our methods inside transformers' own `generate`.

>>> model.generate(ids, custom_generate=specrace.hf.custom_generate, method="trie", max_new_tokens=64)  # doctest: +SKIP

`generate` prepares its arguments, we run the decoding loop. Under greedy decoding the output is that of transformers'
own loop; under sampling it has the same distribution, drawn with a seed of ours. Settings under which the two would
differ raise ValueError.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import EosTokenCriteria, GenerationConfig, GenerationMixin, MaxLengthCriteria, StoppingCriteriaList
from transformers.generation import LogitNormalization, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specrace.core.cost_curve import ASSUMED_EAGER_CPU, CostCurve
from specrace.core.errors import InputError
from specrace.core.sampling_params import SamplingParams
from specrace.engine.race import generate
from specrace.engine.spec import RaceSpec, plan_lane
from specrace.model.draft_model import DraftModel
from specrace.model.loading import check_trees, refuse_unsupported
from specrace.model.sampling import draw_seed
from specrace.model.target import Target
from specrace.ngrams.sources import Sources

# Arguments that `generate` passes on and the target makes itself.
_OURS = {"attention_mask", "position_ids", "cache_position", "past_key_values", "use_cache", "logits_to_keep"}
_WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
_MODES = ("dola_layers", "penalty_alpha")
_EXTRAS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
# Model -> (dtype, device, attention) with which its tree attention was checked.
_CHECKED: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()


def custom_generate(
    model: Any,
    input_ids: Tensor,
    logits_processor: Sequence[Any],
    stopping_criteria: Sequence[Any],
    generation_config: GenerationConfig,
    streamer: Any = None,
    *,
    method: str = "trie",
    num_draft: int | None = None,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    sources: Sources = Sources(),  # noqa: B008  it is frozen
    draft_model: DraftModel | None = None,
    curve: CostCurve | None = None,
    **model_kwargs: Any,
) -> Any:
    """Decode one sequence with `method`; returns ids [1, prompt + new], as `generate` does.

    The keyword arguments are given to `generate` itself: a lane's name, `num_draft` (None: from the cost `curve`, which
    is assumed in float32 on a CPU, or the method's default) and drafter `options`; its `sources` and `draft_model`; the
    `seed` under sampling (None: drawn from torch's generator, so `torch.manual_seed` reproduces the output). Raises
    ValueError for more than one sequence and for settings that drafts cannot obey.
    """
    with _value_errors(), _evaluating(model):
        _refuse_modes(generation_config)
        _refuse_inputs(input_ids, model_kwargs)
        eos_ids, max_length, criteria = _split_criteria(stopping_criteria, generation_config)
        params = _sampling_params(logits_processor, bool(generation_config.do_sample), seed)
        target = _open_target(model, eos_ids, draft_model)
        if curve is None and target.device_type == "cpu" and target.dtype == torch.float32:
            curve = ASSUMED_EAGER_CPU
        prompt, options = input_ids[0].tolist(), options or {}
        new = max(1, max_length - len(prompt))
        spec = RaceSpec((method,), num_draft=num_draft, options={method: options})
        plan = plan_lane(spec, method, target.device_type, None if curve is None else curve.near(len(prompt)))
        # Near the end of the model's context a smaller draft is better than none.
        num_draft = max(0, min(plan.num_draft, target.max_context - len(prompt) - new))
        settings = asdict(params) | {"max_new_tokens": new, "num_draft": num_draft}
        steps = generate(target, method, prompt, sources=sources, curve=curve, **settings, **options)
        tokens = (token for step in steps for token in step.emitted)
        ids = _collect(input_ids, new, tokens, criteria, _own_streamer(streamer, input_ids))
    return GenerateDecoderOnlyOutput(sequences=ids) if generation_config.return_dict_in_generate else ids


def _collect(prompt: Tensor, room: int, tokens: Iterator[int], criteria: StoppingCriteriaList, streamer: Any) -> Tensor:
    """Ids [1, prompt + new] up to the first token at which a criterion fires; each goes to the streamer."""
    length = prompt.shape[1]
    ids = torch.nn.functional.pad(prompt, (0, room))
    for token in tokens:
        ids[0, length] = token
        length += 1
        if streamer is not None:
            streamer.put(ids[0, length - 1 : length].cpu())
        if criteria and bool(criteria(ids[:, :length], None).all()):
            break
    if streamer is not None:
        streamer.end()
    return ids[:, :length].clone()


def _split_criteria(
    criteria: Sequence[Any], config: GenerationConfig
) -> tuple[frozenset[int], int, StoppingCriteriaList]:
    """(end-of-text tokens, length, other criteria), read from the criteria, which are what `generate` obeys."""
    lengths = [each.max_length for each in criteria if type(each) is MaxLengthCriteria]
    eos_ids = [each.eos_token_id.flatten().tolist() for each in criteria if type(each) is EosTokenCriteria]
    others = [each for each in criteria if type(each) not in (MaxLengthCriteria, EosTokenCriteria)]
    length = min(lengths, default=config.max_length)
    return frozenset(chain.from_iterable(eos_ids)), length, StoppingCriteriaList(others)


def _sampling_params(processors: Sequence[Any], samples: bool, seed: int | None) -> SamplingParams:
    """The parameters that these processors amount to. Raises ValueError for others than temperature, top-k, top-p."""
    values: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    before = -1
    for processor in processors:
        kind = type(processor)
        if kind is LogitNormalization:
            continue  # shifts all logits of a row by the same amount
        name = kind.__name__
        if kind not in _WARPERS:
            raise ValueError(f"{name} depends on earlier tokens or is not known to specrace; leave it out.")
        if _WARPERS.index(kind) <= before:
            raise ValueError(f"{name} comes twice or too late; specrace warps by temperature, then top-k, then top-p.")
        before = _WARPERS.index(kind)
        if getattr(processor, "filter_value", -math.inf) != -math.inf:
            raise ValueError(f"{name} fills with {processor.filter_value}; specrace leaves tokens out altogether.")
        if kind is TopPLogitsWarper and processor.min_tokens_to_keep != 1:
            raise ValueError(f"{name} keeps at least {processor.min_tokens_to_keep} tokens; specrace keeps one.")
        values |= {key: getattr(processor, key) for key in values if hasattr(processor, key)}
    return SamplingParams(**values, seed=draw_seed() if seed is None else seed) if samples else SamplingParams()


def _refuse_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> None:
    """Raises ValueError unless one unpadded sequence of tokens is the model's only input."""
    if input_ids.ndim != 2 or input_ids.shape[0] != 1:
        raise ValueError(f"specrace decodes one sequence at a time and was given {input_ids.shape[0]}.")
    length = input_ids.shape[1]
    given = {name for name, value in model_kwargs.items() if value is not None and value is not False}
    foreign = sorted(given - _OURS)
    if not length or foreign:
        raise ValueError(f"specrace reads token ids only; leave out {', '.join(foreign) or 'embeddings'}.")
    mask, positions = model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
    if mask is not None and not bool((mask == 1).all()):
        raise ValueError("The prompt is padded or masked; give one sequence without padding.")
    if positions is not None and any(row != list(range(length)) for row in positions.reshape(-1, length).tolist()):
        raise ValueError("The position ids do not count from 0; leave them out.")
    cache = model_kwargs.get("past_key_values")
    if cache is not None and (getattr(cache, "_is_user_defined", False) or cache.get_seq_length()):
        raise ValueError("specrace keeps a cache of its own; leave out past_key_values.")


def _refuse_modes(config: GenerationConfig) -> None:
    """Raises ValueError for other modes than greedy decoding and sampling, and for outputs beside the ids."""
    if (config.num_beams or 1) > 1:
        raise ValueError(f"specrace decodes greedily or samples; it has no beam search (num_beams={config.num_beams}).")
    if name := next((name for name in _MODES if getattr(config, name, None)), None):
        raise ValueError(f"specrace decodes greedily or samples; leave out {name}.")
    extras = [name for name in _EXTRAS if getattr(config, name, None)]
    if config.return_dict_in_generate and extras:
        raise ValueError(f"specrace keeps no {extras[0].removeprefix('output_')} of its steps; leave out {extras[0]}.")


def _own_streamer(given: Any, input_ids: Tensor) -> Any:
    """The streamer for the output, which has had the prompt or gets it now.

    transformers (5.17 and 5.23) gives the prompt to the `streamer` argument of `generate` but does not pass it on to a
    callable, so it is read from the frame of the calling `generate`. A streamer bound to `custom_generate` itself (by
    `functools.partial`) has had nothing yet.
    """
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    passed = frame.f_locals.get("streamer") if frame is not None else None
    if given is None or given is passed:
        return passed
    given.put(input_ids.cpu())
    return given


def _open_target(model: Any, eos_ids: frozenset[int], draft_model: DraftModel | None) -> Target:
    """The model as a target, whose tree attention is checked at its first use. Raises InputError."""
    target = Target(model)
    target.eos_ids, target.drafting = eos_ids, draft_model
    refuse_unsupported(model.config, target.name)
    state = (str(target.dtype), str(target.device), str(getattr(model.config, "_attn_implementation", "")))
    if _CHECKED.get(model) != state:
        check_trees(target)
        _CHECKED[model] = state
    return target


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Restore the training flag of every module afterwards."""
    training = [module for module in model.modules() if module.training]
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _value_errors() -> Iterator[None]:
    """Raise InputError as the ValueError that callers of `generate` expect."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error
