"""Our methods inside transformers' `generate`.

>>> model.generate(ids, custom_generate=specrace.hf.custom_generate, method="trie", max_new_tokens=64)  # doctest: +SKIP

`generate` prepares the arguments, and `custom_generate` runs the decoding loop. Greedy decoding gives the same text as
transformers' loop. Sampling has the same distribution, but gives another text, because it uses other random numbers.
Settings with which the text or the distribution would differ raise ValueError.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
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
from specrace.drafters import head_lanes
from specrace.engine.generate import generate
from specrace.engine.spec import LanePlan, RaceSpec, plan_lane
from specrace.heads.loading import attach_heads
from specrace.model.draft_check import check_trees
from specrace.model.draft_model import DraftModel
from specrace.model.refusals import refuse_unsupported
from specrace.model.sampling import draw_seed
from specrace.model.target import Target
from specrace.ngrams.sources import Sources

# Arguments that `generate` passes on, and that are ignored because the target computes them.
_IGNORED = {"attention_mask", "position_ids", "cache_position", "past_key_values", "use_cache", "logits_to_keep"}
_WARPERS = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)
# Settings that choose decoding modes other than ours, and settings that ask for outputs which are not recorded.
_MODES = ("dola_layers", "penalty_alpha")
_EXTRAS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
# Model -> the dtype, device and attention implementation with which its tree attention was checked.
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
    sources: Sources = Sources(),  # noqa: B008  Sources is frozen
    draft_model: DraftModel | Sequence[DraftModel] | None = None,
    head: str | Path | None = None,
    curve: CostCurve | None = None,
    **model_kwargs: Any,
) -> Any:
    """Decode one sequence with `method`; returns ids [1, prompt + new], like `generate`.

    Callers pass the keyword arguments to `generate`. `method` is a lane's name. Its drafter gets `options`, `sources`,
    `draft_model` (specinfer takes several) and `head`, the folder or hub id of a trained head. If `num_draft` is None,
    it comes from the cost `curve` or from the method's default; in float32 on a CPU, a curve is assumed if none is
    passed. If `seed` is None, it is drawn from torch's generator, so `torch.manual_seed` makes the output
    reproducible. Raises ValueError for more than one sequence and for unsupported settings.
    """
    with _value_errors(), _evaluating(model):
        _refuse_modes(generation_config)
        _refuse_inputs(input_ids, model_kwargs)
        eos_ids, max_length, criteria = _split_criteria(stopping_criteria, generation_config)
        params = _sampling_params(logits_processor, bool(generation_config.do_sample), seed)
        target = _open_target(model, eos_ids, draft_model, () if head is None else (f"{method}={head}",))
        if curve is None and target.device_type == "cpu" and target.dtype == torch.float32:
            curve = ASSUMED_EAGER_CPU
        prompt, options = input_ids[0].tolist(), options or {}
        max_new_tokens = max(1, max_length - len(prompt))  # transformers' loop, too, writes at least one token
        spec = RaceSpec((method,), num_draft=num_draft, options={method: options})
        plan = _plan(target, spec, method, curve, len(prompt))
        # Near the end of the model's context, drafts are shortened to fit.
        num_draft = max(0, min(plan.num_draft, target.max_context - len(prompt) - max_new_tokens))
        settings = asdict(params) | {"max_new_tokens": max_new_tokens, "num_draft": num_draft}
        steps = generate(target, method, prompt, sources=sources, curve=curve, **settings, **options)
        tokens = (token for step in steps for token in step.emitted)
        ids = _collect(input_ids, max_new_tokens, tokens, criteria, _output_streamer(streamer, input_ids))
    return GenerateDecoderOnlyOutput(sequences=ids) if generation_config.return_dict_in_generate else ids


def _plan(target: Target, spec: RaceSpec, method: str, curve: CostCurve | None, context: int) -> LanePlan:
    """The lane's plan after a prompt of `context` tokens."""
    near = None if curve is None else curve.near(context)
    return plan_lane(spec, method, target.device_type, near, chains_only=target.chains_only)


def _collect(
    prompt: Tensor, max_new_tokens: int, tokens: Iterator[int], criteria: StoppingCriteriaList, streamer: Any
) -> Tensor:
    """Ids [1, prompt + new] up to the first token at which a criterion stops; also sends new tokens to the streamer."""
    length = prompt.shape[1]
    ids = torch.nn.functional.pad(prompt, (0, max_new_tokens))
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
    """The end tokens, the maximum length and the other criteria.

    As in `generate`, criteria override the config, which only gives the length if no criterion does.
    """
    lengths = [criterion.max_length for criterion in criteria if type(criterion) is MaxLengthCriteria]
    eos_criteria = [criterion for criterion in criteria if type(criterion) is EosTokenCriteria]
    eos_id_lists = [criterion.eos_token_id.flatten().tolist() for criterion in eos_criteria]
    others = [criterion for criterion in criteria if type(criterion) not in (MaxLengthCriteria, EosTokenCriteria)]
    length = min(lengths, default=config.max_length)
    return frozenset(chain.from_iterable(eos_id_lists)), length, StoppingCriteriaList(others)


def _sampling_params(processors: Sequence[Any], samples: bool, seed: int | None) -> SamplingParams:
    """The sampling parameters set by the processors. Raises ValueError for any but temperature, top-k and top-p."""
    values: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    last_index = -1
    for processor in processors:
        kind = type(processor)
        if kind is LogitNormalization:
            continue  # it shifts all logits by the same amount, which does not change the distribution
        name = kind.__name__
        if kind not in _WARPERS:
            raise ValueError(f"{name} depends on earlier tokens or is not known to specrace; leave it out.")
        if _WARPERS.index(kind) <= last_index:
            raise ValueError(f"{name} comes twice or too late; specrace warps by temperature, then top-k, then top-p.")
        last_index = _WARPERS.index(kind)
        if getattr(processor, "filter_value", -math.inf) != -math.inf:
            raise ValueError(f"{name} has the filter value {processor.filter_value}; specrace only supports -inf.")
        if kind is TopPLogitsWarper and processor.min_tokens_to_keep != 1:
            raise ValueError(f"{name} keeps at least {processor.min_tokens_to_keep} tokens; specrace keeps one.")
        values |= {key: getattr(processor, key) for key in values if hasattr(processor, key)}
    if not samples:
        return SamplingParams()
    return SamplingParams(**values, seed=draw_seed() if seed is None else seed)


def _refuse_inputs(input_ids: Tensor, model_kwargs: Mapping[str, Any]) -> None:
    """Raise ValueError unless the model's only input is one sequence of tokens without padding."""
    if input_ids.ndim != 2 or input_ids.shape[0] != 1:
        raise ValueError(f"specrace decodes one sequence at a time and was given {input_ids.shape[0]}.")
    length = input_ids.shape[1]
    passed = {name for name, value in model_kwargs.items() if value is not None and value is not False}
    unsupported = sorted(passed - _IGNORED)
    if not length or unsupported:
        # Without token ids, `generate` was called with embeddings.
        raise ValueError(f"specrace reads token ids only; leave out {', '.join(unsupported) or 'embeddings'}.")
    mask, positions = model_kwargs.get("attention_mask"), model_kwargs.get("position_ids")
    if mask is not None and not bool((mask == 1).all()):
        raise ValueError("The prompt is padded or masked; give one sequence without padding.")
    if positions is not None and any(row != list(range(length)) for row in positions.reshape(-1, length).tolist()):
        raise ValueError("The position ids do not count from 0; leave them out.")
    cache = model_kwargs.get("past_key_values")
    if cache is not None and (getattr(cache, "_is_user_defined", False) or cache.get_seq_length()):
        raise ValueError("specrace creates the cache; leave out past_key_values.")


def _refuse_modes(config: GenerationConfig) -> None:
    """Raise ValueError for modes other than greedy decoding and sampling, and for outputs other than the ids."""
    if (config.num_beams or 1) > 1:
        raise ValueError(f"specrace decodes greedily or samples; it has no beam search (num_beams={config.num_beams}).")
    modes = [name for name in _MODES if getattr(config, name, None)]
    if modes:
        raise ValueError(f"specrace decodes greedily or samples; leave out {modes[0]}.")
    extras = [name for name in _EXTRAS if getattr(config, name, None)]
    if config.return_dict_in_generate and extras:
        raise ValueError(f"specrace does not return {extras[0].removeprefix('output_')}; leave out {extras[0]}.")


def _output_streamer(bound: Any, input_ids: Tensor) -> Any:
    """The streamer for the output, after it has received the prompt.

    `generate` of transformers 5.17 and 5.23 puts the prompt into its `streamer`, but does not pass the streamer on to
    `custom_generate`, so it is read from the frame of the calling `generate`. A streamer that was `bound` to
    `custom_generate` by `functools.partial` has not received the prompt, so it gets the prompt here.
    """
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    passed = frame.f_locals.get("streamer") if frame is not None else None
    if bound is None or bound is passed:
        return passed
    bound.put(input_ids.cpu())
    return bound


def _open_target(
    model: Any, eos_ids: frozenset[int], drafting: DraftModel | Sequence[DraftModel] | None, heads: Sequence[str]
) -> Target:
    """The model as a target. Raises InputError.

    Its tree attention is checked at the first use, and again if dtype, device or attention implementation changed.
    """
    target = Target(model)
    if drafting:
        target.drafting, *more = drafting if isinstance(drafting, Sequence) else (drafting,)
        target.more_drafting = tuple(more)
    target.eos_ids = eos_ids
    attach_heads(target, heads, head_lanes())
    refuse_unsupported(model.config, target.name)
    state = (str(target.dtype), str(target.device), str(getattr(model.config, "_attn_implementation", "")))
    if _CHECKED.get(model) != state:
        check_trees(target)
        _CHECKED[model] = state
    return target


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Restore the modules' training flags afterwards, because a target puts the model into evaluation mode."""
    training = [module for module in model.modules() if module.training]
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _value_errors() -> Iterator[None]:
    """Convert an InputError to a ValueError, which callers of `generate` expect."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error
