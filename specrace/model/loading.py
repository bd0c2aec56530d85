"""Loads a model by path or hub id, refuses a model that cannot race, and captures its forward so that it runs fast."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Unpack

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

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.errors import DeviceError, InputError, lacks_memory, shorten
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.model.capture import TOLERANCE, capture, drop_layers, gap
from specrace.model.draft_model import DraftModel, check_vocabulary
from specrace.model.forward.products import round_weights
from specrace.model.forward.reach import CHUNKED, FULL, SLIDING
from specrace.model.forward.states import STATE_AND_KEYS, STATE_ONLY, WITHOUT_CACHE
from specrace.model.machine.device_map import DeviceMap, prepare_mapped
from specrace.model.machine.memory import free_memory
from specrace.model.placement import Placement, place
from specrace.model.refusals import advice
from specrace.model.scorer import DTYPES, INT8
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers, LeadingTarget, check_splits, load_part
from specrace.model.weights.adapter import adapt
from specrace.model.weights.checkpoint import check_weights, refuse_large_numbers, refuse_own_code, refuse_packed
from specrace.model.weights.fingerprint import fingerprint
from specrace.model.weights.names import weight_files
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
        model, tokenizer = _load_parts(source, attention, placement)
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
            raise _too_little_memory(placement.device, location) from error
        raise InputError(
            f"The model {location} could not be loaded ({_reason(error)}); "
            "give a folder with config.json and weights, or the id of a hub model that this machine can reach."
        ) from error
    if followers is not None:
        return LeadingTarget(model, tokenizer, title, followers)
    if device_map is not None:
        prepare_mapped(model, title)
    target = Target(model, tokenizer, title, prompt_style, int8=is_int8)
    target.fingerprint = digest
    return target


def _reason(error: Exception) -> str:
    """The first line of an error's message, shortened; the error's type if the message is empty."""
    lines = str(error).strip().splitlines()
    return shorten(lines[0]) if lines else type(error).__name__


def _too_little_memory(device: str, name: str) -> InputError:
    if device == "cpu":
        return InputError(f"This machine has too little memory for {name}; give a smaller model.")
    return DeviceError(f"The device {device} has too little memory for {name}; give a smaller model.")


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


def _load_parts(source: ModelSource, attention: str, placement: Placement) -> tuple[Any, Any]:
    """Load a model and its tokenizer. Raises InputError for a refused model, and whatever transformers raises."""
    location, title, folder, followers = source.location, source.title, source.folder, placement.followers
    is_local = folder is not None
    if not is_local:
        # Ask the hub once with a short timeout; the loaders below would retry for half a minute.
        HfApi().model_info(str(location), timeout=10)
    # These checks come first, because transformers would ask on standard input whether to run the model's own code.
    config_dict = PretrainedConfig.get_config_dict(location, local_files_only=is_local)[0]
    refuse_own_code(config_dict, "config.json", str(location))
    refuse_large_numbers(config_dict, title)
    refuse_packed(config_dict, title)
    refuse_own_code(get_tokenizer_config(location, local_files_only=is_local), "tokenizer_config.json", str(location))
    config = AutoConfig.from_pretrained(location, local_files_only=is_local, trust_remote_code=False)
    refuse_unsupported(config, title)
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


def refuse_too_large(folder: Path, name: str, stored: torch.dtype | None, dtype: torch.dtype) -> None:
    """Raises InputError if the weights in `folder` do not fit into memory; otherwise Linux would kill the process.

    `stored` is the dtype of the weights on disk (None: float32), `dtype` their dtype in memory.
    """
    size = sum(file.stat().st_size for file in weight_files(folder) if file.is_file())
    needed, free = size * dtype.itemsize // (stored or torch.float32).itemsize, free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"This machine has too little memory for {name}: its weights take {needed / 1e9:.2g} GB and "
            f"{free / 1e9:.2g} GB are free; give a smaller model, or --dtype bfloat16."
        )


def refuse_unsupported(config: Any, name: str) -> None:
    """Raises InputError for a model with an encoder, or with layers that choose which cached tokens they read.

    Layers that keep one state for all earlier tokens race on chains (`specrace.model.forward.states`). Layers without a
    cache are allowed.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(f"{name} has an encoder and a decoder; {advice(config.model_type)}.")
    text = config.get_text_config()
    supported = {FULL, SLIDING, CHUNKED, "attention"} | STATE_ONLY | STATE_AND_KEYS | WITHOUT_CACHE
    unsupported = set(getattr(text, "layer_types", None) or ()) - supported
    if unsupported:
        kinds = " and ".join(sorted(unsupported))
        raise InputError(
            f"{name} has layers of the kind {kinds}, which cannot follow the branches of a draft tree; "
            f"{advice(text.model_type)}."
        )


def check_trees(target: Target) -> None:
    """Raises InputError unless a small draft, and tokens after a rejection, get the logits of a plain forward.

    A model may accept a mask and positions but not attend by them; its logits then differ. During the check, windows
    and chunks are three tokens long, so that the draft reaches beyond them.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, target.vocab_size, (12,), generator=generator).tolist()
    try:
        with target.with_reach(3):
            largest_gap = _chain_gap(target, tokens) if target.chains_only else _tree_gap(target, tokens)
    except InputError:
        raise
    # The model's code is not ours, and it may not be written for such inputs, so it may raise anything.
    except Exception as error:
        if lacks_memory(error):
            raise _too_little_memory(str(target.device), target.name) from error
        raise InputError(
            f"{target.name} cannot be scored with a {_draft_word(target)} of drafts ({_reason(error)}); "
            f"{advice(target.config.model_type)}."
        ) from error
    # `largest_gap > ...` would be false for NaN.
    if not largest_gap <= TOLERANCE[target.dtype]:
        raise InputError(
            f"{target.name} does not score a {_draft_word(target)} of drafts as it decodes "
            f"(its logits differ by {largest_gap:.2g}); {advice(target.config.model_type)}."
        )


def _draft_word(target: Target) -> str:
    return "chain" if target.chains_only else "tree"


def _tree_gap(target: Target, tokens: list[int]) -> float:
    """The largest gap to a plain forward in a tree with two branches, and after one of them was accepted."""
    builder = TreeBuilder(tokens[3])
    builder.add_path([tokens[4], tokens[5]])
    branch = builder.add_path([(tokens[4] + 1) % target.vocab_size, tokens[7]])
    tree = builder.build()
    store = target.prefill(tokens[:4]).store.clone(12)
    in_tree = target.logits(store, tree)[branch[-1]]
    store.keep(tree.path_to(branch[-1]))
    after_branch = target.logits(store, TokenTree.chain(tokens[8]))[0]
    text = [*tokens[:3], *(tree.tokens[node] for node in tree.path_to(branch[-1]))]
    plain = target.plain_logits([*text, tokens[8]]).float()
    return max(gap(in_tree, plain[-2]), gap(after_branch, plain[-1]))


def _chain_gap(target: Target, tokens: list[int]) -> float:
    """The largest gap to decoding one by one, in chains of which two tokens or none are rejected; each scored twice."""
    assert target.chains is not None
    prompt, decoded = tokens[:3], [*tokens[3:6], *tokens[8:]]
    plain = target.chains.decode(prompt, decoded).float()
    store = target.prefill(tokens[:4]).store.clone(12)
    gaps = []
    for chain, kept in ((tokens[3:8], 3), (tokens[8:11], 3), (tokens[11:], 1)):
        for _ in range(2):
            logits = target.logits(store, TokenTree.chain(chain[0], chain[1:]))[:kept]
            first = store.length - len(prompt)
            gaps += [gap(row, plain[first + number]) for number, row in enumerate(logits)]
        store.keep(range(kept))
    # Unlike Python's `max`, this is NaN if any gap is NaN.
    return float(torch.tensor(gaps).max())
