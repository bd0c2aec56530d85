"""Loads a model by path or hub id, refuses a model that cannot race, and captures its forward so that it runs fast."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Unpack

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.errors import InputError, first_line, lacks_memory, memory_error, shorten
from specrace.model.capture import capture, drop_layers
from specrace.model.draft_check import check_trees
from specrace.model.draft_model import DraftModel, check_vocabulary
from specrace.model.forward.products import round_weights
from specrace.model.machine.device_map import DeviceMap, prepare_mapped
from specrace.model.placement import Placement, place
from specrace.model.pretrained import load_parts
from specrace.model.scorer import INT8
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers, LeadingTarget
from specrace.model.weights.adapter import adapt
from specrace.model.weights.fingerprint import fingerprint
from specrace.model.weights.source import NONE, ModelChoice, ModelSettings, ModelSource, choose_model


def load_target(
    model: str | Path | ModelSource | ModelChoice = BUNDLED_MODEL,
    *,
    attention: str = "sdpa",
    graphs: bool = True,
    device_map: DeviceMap | None = None,
    followers: Followers | None = None,
    ready: bool = True,
    **settings: Unpack[ModelSettings],
) -> Target:
    """Load a model by short name, path or hub id, or from a `ModelChoice`, and check that it can score trees.

    - `attention`: transformers' name of an attention implementation (see `supported_attention`).
    - `device`: "cpu", "cuda", "cuda:1", or "auto": the GPU, or the CPU if there is none; several GPUs get the layers
      that transformers' `device_map="auto"` gives them. An explicit `device_map` takes precedence.
    - `dtype`: by default "float32" on a CPU and "bfloat16" on a GPU; "int8" is for Llama's family and Gemma 3 on a CPU.
    - `draft_model`: path or hub id of a smaller model for the lane draft-model; the bundled model has its own.
    - `graphs`: capture and replay forwards where possible: CUDA graphs, or on a CPU compiled code or TorchScript.
    - `followers`: the other processes that hold parts of this model (`specrace.model.tensor_parallel.run`).
    - `adapter`: the folder of a low-rank adapter to merge, "none", or "auto": the shipped adapter, if it fits.
    - `ready`: False if the device is not available yet: nothing is computed until the caller calls `make_ready`.
    - `lean`: free weights of which a captured forward has copies; not for `--peers`, which run the model's own layers.

    Raises InputError for a model that does not exist, is no causal language model, cannot score trees, or cannot be
    spread over devices or split over processes as requested; and for a draft model with a different vocabulary.
    """
    choice = choose_model(model, **settings)
    placement = place(choice, device_map, followers)
    target = _load(choice.source, attention, placement)
    if ready:
        check_trees(target)
    if choice.draft is not None:
        target.drafting = load_draft_model(choice.draft, target, graphs=graphs, ready=ready, lean=choice.lean)
    elif Path(choice.source.location).resolve() == BUNDLED_MODEL:
        target.drafting = partial(load_draft_model, BUNDLED_DRAFT_MODEL, graphs=graphs)
    if ready and graphs and followers is None:
        capture(target)
        if choice.lean:
            drop_layers(target)
    if ready and graphs:
        check_int8(target)
    return target


def make_ready(target: Target) -> None:
    """Check a target that was loaded with `ready=False` and capture its forward; do the same for its draft model.

    A draft model that is not loaded yet is left alone. Raises InputError if a model cannot score trees or cannot run
    in its dtype.
    """
    if target.graphs is None and target.replay is None:
        check_trees(target)
        capture(target)
        check_int8(target)
    if isinstance(target.drafting, DraftModel):
        draft = target.drafting.model
        assert isinstance(draft, Target)
        make_ready(draft)


def check_int8(target: Target) -> None:
    """Raises InputError for a target with 8-bit weights if no captured forward computes with them."""
    if target.int8 and target.replay is None:
        raise InputError(f"{target.name} cannot run in int8 ({target.eager_because}); use --dtype float32.")


def _load(source: ModelSource, attention: str, placement: Placement) -> Target:
    """Load a target onto its devices, without checking or capturing it. Raises InputError."""
    location = shorten(source.location)
    device_map, followers, is_int8 = placement.device_map, placement.followers, placement.dtype == INT8
    exists = os.path.exists(source.location)  # noqa: PTH110 (Path.exists raises for a name that is too long)
    if source.is_folder and not exists:
        raise InputError(f"There is no model at {location}; give a folder with config.json, or a hub id.")
    try:
        model, tokenizer = load_parts(source, attention, placement)
        title, prompt_style = adapt(model, tokenizer, source.title, placement.adapter)
        digest = "" if followers is not None else fingerprint(model)
        if is_int8:
            round_weights(model)
        if device_map is None and followers is None:
            model.to(placement.device)
    except InputError:
        raise
    except (
        Exception
    ) as error:  # transformers raises many kinds of errors; a user needs to know which model failed to load
        if lacks_memory(error):
            raise memory_error(placement.device, location) from error
        raise InputError(
            f"The model {location} could not be loaded ({first_line(error)}); "
            "give a folder with config.json and weights, or the id of a hub model that this machine can reach."
        ) from error
    if followers is not None:
        return LeadingTarget(model, tokenizer, title, followers)
    if device_map is not None:
        prepare_mapped(model, title)
    target = Target(model, tokenizer, title, prompt_style, int8=is_int8)
    target.fingerprint = digest
    return target


def load_draft_model(
    source: str | Path | ModelSource,
    target: Target,
    *,
    graphs: bool = True,
    ready: bool = True,
    lean: bool = False,
) -> DraftModel:
    """Load a model that drafts for `target`, by path or hub id, on the target's (first) device and in its dtype.

    `graphs`, `ready` and `lean` have the same meaning as in `load_target`. Raises InputError if the model cannot be
    loaded, or if its vocabulary differs from the target's.
    """
    dtype = str(target.dtype).removeprefix("torch.")
    model = load_target(
        source, device=str(target.device), dtype=dtype, adapter=NONE, graphs=graphs, ready=ready, lean=lean
    )
    check_vocabulary(model, target)
    return DraftModel(model, target.vocab_size)
