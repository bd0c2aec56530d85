"""Loads a model and its tokenizer with transformers onto its devices, after all checks that need no weights.

Followers are the other processes, if a model is split over several.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from huggingface_hub import HfApi
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from specrace.core.errors import InputError, first_line, lacks_memory, memory_error, shorten
from specrace.model.forward.products import round_weights
from specrace.model.machine.device_map import prepare_mapped
from specrace.model.placement import Placement
from specrace.model.refusals import refuse_other_tasks, refuse_unsupported
from specrace.model.scorer import DTYPES, INT8
from specrace.model.target import MASKS, Target
from specrace.model.tensor_parallel import LeadingTarget, check_splits, load_part
from specrace.model.weights.adapter import adapt
from specrace.model.weights.checkpoint import (
    check_weights,
    refuse_large_numbers,
    refuse_own_code,
    refuse_packed,
    refuse_too_large,
)
from specrace.model.weights.fingerprint import fingerprint
from specrace.model.weights.source import ModelSource


def load_eager(source: ModelSource, attention: str, placement: Placement) -> Target:
    """Load a target onto its devices, without checking or capturing it. Raises InputError."""
    device_map, followers, is_int8 = placement.device_map, placement.followers, placement.dtype == INT8
    exists = os.path.exists(source.location)  # noqa: PTH110 (Path.exists raises for a name that is too long)
    if source.is_folder and not exists:
        raise InputError(
            f"There is no model at {shorten(source.location)}; give a folder with config.json, or a hub id."
        )
    try:
        model, tokenizer = _load_parts(source, attention, placement)
        title, prompt_style = adapt(model, tokenizer, source.title, placement.adapter)
        digest = "" if followers is not None else fingerprint(model)
        if is_int8:
            round_weights(model)
        if device_map is None and followers is None:
            model.to(placement.device)
    except InputError:
        raise
    # transformers raises many kinds of errors; a user needs to know which model failed to load.
    except Exception as error:
        if lacks_memory(error):
            raise memory_error(placement.device, shorten(source.location)) from error
        raise InputError(
            f"The model {shorten(source.location)} could not be loaded ({first_line(error)}); "
            "give a folder with config.json and weights, or the id of a hub model that this machine can reach."
        ) from error
    if followers is not None:
        return LeadingTarget(model, tokenizer, title, followers)
    if device_map is not None:
        prepare_mapped(model, title)
    target = Target(model, tokenizer, title, prompt_style, int8=is_int8)
    target.fingerprint = digest
    if source.folder is not None and (source.folder / MASKS).is_dir():
        target.own_masks = source.folder / MASKS
    return target


def _load_parts(source: ModelSource, attention: str, placement: Placement) -> tuple[Any, Any]:
    """Load a model and its tokenizer. Raises InputError for a refused model, and whatever transformers raises."""
    location, title, folder, followers = source.location, source.title, source.folder, placement.followers
    is_local = folder is not None
    if not is_local:
        # Ask the hub once with a short timeout in seconds; the loaders below would retry for half a minute.
        HfApi().model_info(str(location), timeout=10)
    # These checks come first, because transformers would ask on standard input whether to run the model's own code.
    config_dict = PretrainedConfig.get_config_dict(location, local_files_only=is_local)[0]
    refuse_own_code(config_dict, "config.json", str(location))
    refuse_large_numbers(config_dict, title)
    refuse_packed(config_dict, title)
    refuse_own_code(get_tokenizer_config(location, local_files_only=is_local), "tokenizer_config.json", str(location))
    config = AutoConfig.from_pretrained(location, local_files_only=is_local, trust_remote_code=False)
    refuse_unsupported(config, title)
    refuse_other_tasks(config, title)
    tokenizer = AutoTokenizer.from_pretrained(location, local_files_only=is_local, trust_remote_code=False)
    if followers is not None:
        check_splits(config, title, followers.size)
        arguments = (str(location), placement.dtype, attention, is_local)
        with followers.repeating("load", *arguments):
            model, report = load_part(*arguments)
    else:
        dtype = DTYPES.get(placement.dtype, torch.float32)
        if folder is not None and placement.device_map is None:
            refuse_too_large(folder, title, getattr(config, "dtype", None), dtype)
        model, report = AutoModelForCausalLM.from_pretrained(
            location,
            dtype=dtype,
            attn_implementation=supported_attention(config, attention),
            device_map=placement.device_map,
            local_files_only=is_local,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report lists the mismatches, and `check_weights` refuses them by name
        )
    check_weights(report, str(location))
    return model, tokenizer


def supported_attention(config: Any, attention: str) -> str:
    """The attention to load a model with: `attention`, but "eager" instead of "sdpa" if the model's class has no sdpa.

    Models without sdpa cap their attention scores, or add sinks or biases to them, which torch's fused attention cannot
    do.
    """
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    has_sdpa = model_class is None or model_class._supports_sdpa
    return attention if has_sdpa or attention != "sdpa" else "eager"
