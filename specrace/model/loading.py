"""Loading a model by path or hub id: the model is checked or refused, and its forward is captured to run fast."""

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
from specrace.model.machine.device_map import DeviceMap, prepare_mapped
from specrace.model.machine.memory import free_memory
from specrace.model.placement import Placement, place
from specrace.model.refusals import advice
from specrace.model.scorer import DTYPES, INT8
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers, LeadingTarget, check_splits, load_part
from specrace.model.weights.adapter import adapt
from specrace.model.weights.checkpoint import check_weights, refuse_large_numbers, refuse_own_code
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
    """Load a model by short name, path or hub id, or as chosen, and check that it scores trees as it decodes.

    - `device`: "cpu", "cuda", "cuda:1", or "auto": the GPU, or the CPU if there is none; several GPUs get the layers
      that transformers' `device_map="auto"` gives them. An explicit `device_map` takes precedence.
    - `dtype`: by default "float32" on a CPU, "bfloat16" on a GPU; "int8" rounds Llama-like weights to 8 bits, on a CPU.
    - `draft_model`: path or hub id of a smaller model for the lane draft-model; the bundled model has its own.
    - `graphs`: capture and replay forwards where possible: CUDA graphs, or on a CPU compiled code or TorchScript.
    - `followers`: processes that each hold a part of the model, like this one (`specrace.model.tensor_parallel.run`).
    - `adapter`: the folder of a low-rank adapter to merge, "none", or "auto": the shipped adapter, if it fits.
    - `ready`: False if the device is not available yet: nothing is computed, and `make_ready` is called later.
    - `lean`: free the weights that a captured forward has copied. Not with `--peers`, which run the original modules.

    Raises InputError for a model that does not exist, is no causal language model, cannot verify trees, cannot be
    spread or split as requested, or whose draft model has a different vocabulary.
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
    """Check a target that was loaded with `ready=False` and capture its forward; likewise its draft model, if loaded.

    Raises InputError if a model cannot verify trees or cannot run in its dtype.
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
    """Load a target onto its devices, neither checked nor captured. Raises InputError."""
    short_name = shorten(source.location)
    device_map, followers, is_int8 = placement.device_map, placement.followers, placement.dtype == INT8
    exists = os.path.exists(source.location)  # noqa: PTH110 (Path.exists raises for a name that is too long)
    if source.is_folder and not exists:
        raise InputError(f"There is no model at {short_name}; give a folder with config.json, or a hub id.")
    try:
        model, tokenizer = _load_parts(source, attention, placement)
        label, style = adapt(model, tokenizer, source.title, placement.adapter)
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
            raise _too_little_memory(placement.device, short_name) from error
        raise InputError(
            f"The model {short_name} could not be loaded ({_reason(error)}); "
            "give a folder with config.json and weights, or the id of a hub model that this machine can reach."
        ) from error
    if followers is not None:
        return LeadingTarget(model, tokenizer, label, followers)
    if device_map is not None:
        prepare_mapped(model, label)
    return Target(model, tokenizer, label, style, int8=is_int8)


def _reason(error: Exception) -> str:
    """The first line of an error's message, shortened; its type if it has none."""
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
    """Load a Hugging Face model by path or hub id to draft for `target`, on its (first) device and in its dtype.

    `graphs`, `ready` and `lean` are those of `load_target`. Raises InputError if the model cannot be loaded or has a
    different vocabulary.
    """
    dtype = str(target.dtype).removeprefix("torch.")
    model = load_target(
        source, device=str(target.device), dtype=dtype, adapter=NONE, graphs=graphs, ready=ready, lean=lean
    )
    check_vocabulary(model, target)
    return DraftModel(model, target.vocab_size)


def _load_parts(source: ModelSource, attention: str, placement: Placement) -> tuple[Any, Any]:
    """Model and tokenizer. Raises InputError for a model that is refused, and whatever transformers raises."""
    name, label, folder, followers = source.location, source.title, source.folder, placement.followers
    local = folder is not None
    if not local:
        # Ask the hub once, briefly, before the loaders below, which would retry for half a minute.
        HfApi().model_info(str(name), timeout=10)
    # Checked before transformers loads anything: it would ask on standard input whether to run the model's own code.
    config_dict = PretrainedConfig.get_config_dict(name, local_files_only=local)[0]
    refuse_own_code(config_dict, "config.json", str(name))
    refuse_large_numbers(config_dict, label)
    refuse_own_code(get_tokenizer_config(name, local_files_only=local), "tokenizer_config.json", str(name))
    config = AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    refuse_unsupported(config, label)
    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    if followers is not None:
        check_splits(config, label, followers.size)
        arguments = (str(name), placement.dtype, attention, local)
        with followers.joining("load", *arguments):
            model, report = load_part(*arguments)
    else:
        dtype = DTYPES.get(placement.dtype, torch.float32)
        if folder is not None and placement.device_map is None:
            refuse_too_large(folder, label, getattr(config, "dtype", None), dtype)
        model, report = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=dtype,
            attn_implementation=supported_attention(config, attention),
            device_map=placement.device_map,
            local_files_only=local,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are listed in the report; `check_weights` raises and names them
        )
    check_weights(report, str(name))
    return model, tokenizer


def supported_attention(config: Any, attention: str) -> str:
    """`attention`, or "eager" for "sdpa" if transformers' code of this kind of model has no sdpa.

    Those kinds cap their scores or add sinks or biases to them, which torch's fused attention does not do.
    """
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    has_sdpa = model_class is None or model_class._supports_sdpa
    return attention if has_sdpa or attention != "sdpa" else "eager"


def refuse_too_large(folder: Path, name: str, stored: torch.dtype | None, dtype: torch.dtype) -> None:
    """Raises InputError if the weights in `folder` do not fit into memory, because Linux would kill the process."""
    size = sum(file.stat().st_size for file in weight_files(folder) if file.is_file())
    needed, free = size * dtype.itemsize // (stored or torch.float32).itemsize, free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"This machine has too little memory for {name}: its weights take {needed / 1e9:.2g} GB and "
            f"{free / 1e9:.2g} GB are free; give a smaller model, or --dtype bfloat16."
        )


def refuse_unsupported(config: Any, name: str) -> None:
    """Raises InputError for a model with an encoder, or with layers whose cache cannot hold branches.

    Such layers keep a state of all tokens before (linear, state-space, recurrent, convolutional), or choose the columns
    that they read. Layers without a cache do not matter.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(f"{name} has an encoder and a decoder; {advice(config.model_type)}.")
    text = config.get_text_config()
    unsupported = set(getattr(text, "layer_types", None) or ()) - {FULL, SLIDING, CHUNKED, "attention", "mlp", "moe"}
    if unsupported:
        kinds = " and ".join(sorted(unsupported))
        raise InputError(
            f"{name} has layers of the kind {kinds}, which cannot follow the branches of a draft tree; "
            f"{advice(text.model_type)}."
        )


def check_trees(target: Target) -> None:
    """Raises InputError unless a small tree, and a token after a kept branch, score as in a plain forward.

    This distinguishes a model that attends by mask and position from one that merely accepts them. Windows and chunks
    are three tokens long meanwhile, so that the tree reaches beyond them.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, target.vocab_size, (12,), generator=generator).tolist()
    builder = TreeBuilder(tokens[3])
    builder.add_path([tokens[4], tokens[5]])
    branch = builder.add_path([(tokens[4] + 1) % target.vocab_size, tokens[7]])
    tree = builder.build()
    try:
        with target.with_reach(3):
            store = target.prefill(tokens[:4]).store.clone(12)
            first = target.logits(store, tree)[branch[-1]]
            store.keep(tree.path_to(branch[-1]))
            second = target.logits(store, TokenTree.chain(tokens[8]))[0]
            path = [*tokens[:3], *(tree.tokens[node] for node in tree.path_to(branch[-1]))]
            plain = target.plain_logits([*path, tokens[8]]).float()
        largest_gap = max(gap(first, plain[-2]), gap(second, plain[-1]))
    except InputError:
        raise
    # The model's code is not ours, and is given inputs that it may not be written for, so it may raise anything.
    except Exception as error:
        if lacks_memory(error):
            raise _too_little_memory(str(target.device), target.name) from error
        raise InputError(
            f"{target.name} cannot be scored with a tree of drafts ({_reason(error)}); "
            f"{advice(target.config.model_type)}."
        ) from error
    if not largest_gap <= TOLERANCE[target.dtype]:
        raise InputError(
            f"{target.name} does not score a tree of drafts as it decodes (its logits differ by {largest_gap:.2g}); "
            f"{advice(target.config.model_type)}."
        )
