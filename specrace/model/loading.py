"""Loading: a model by path or hub id, refused or checked, and made ready to run fast."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.core.errors import DeviceError, InputError, lacks_memory, shorten
from specrace.core.tree import TokenTree, TreeBuilder
from specrace.model.adapter import AUTO, NONE, adapt
from specrace.model.checkpoint import check_weights, refuse_large_numbers, refuse_own_code
from specrace.model.device_map import DeviceMap, check_map, one_device, settle_map, spread
from specrace.model.draft_model import DraftModel, check_vocabulary
from specrace.model.machine import free_memory
from specrace.model.names import hub_snapshot, is_whole, resolve, weight_files
from specrace.model.products import round_weights
from specrace.model.replays import TOLERANCE, capture, drop_layers, gap
from specrace.model.scorer import DTYPES, INT8
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers, LeadingTarget, check_places, check_splits, load_part


def load_target(
    name: str | Path = BUNDLED_MODEL,
    *,
    device: str = "cpu",
    dtype: str | None = None,
    attention: str = "sdpa",
    draft_model: str | Path | None = None,
    graphs: bool = True,
    device_map: DeviceMap | None = None,
    followers: Followers | None = None,
    adapter: str | Path = AUTO,
    ready: bool = True,
    lean: bool = False,
) -> Target:
    """A Hugging Face model by short name, path or hub id, checked to score trees exactly as it decodes.

    `device` is "cpu", "cuda", "cuda:1", or "auto": the GPU or CPU that there is, and of several GPUs all, with the
    layers where transformers' `device_map="auto"` puts them; a `device_map` of one's own goes before it.
    `dtype` is "float32" on a CPU and "bfloat16" on a GPU unless said; "int8" rounds a model of the Llama family to
    weights of 8 bits, on a CPU. `draft_model` is the path or hub id of a smaller
    one for the lane draft-model; the bundled model has one of its own. Forwards are captured and replayed where the
    model allows it and lies on one device, as CUDA graphs, or on a CPU as compiled code or TorchScript, unless `graphs`
    is false. With `followers` (`specrace.model.tensor_parallel.run`) their processes and this one hold a part of the
    model each.
    `adapter` is the folder of a low-rank adapter to merge, "none", or "auto": the one that ships, where it fits.
    Where the device is not there yet, `ready` is false: nothing is computed, and `make_ready` is called later.
    `lean`: for whoever races alone, without peers, who run the library's modules: weights that a captured forward has
    copied are held once.
    Raises InputError when a model is not there, is no causal language model, cannot verify trees, or drafts with
    another vocabulary, and when it cannot be spread or split as was asked for.
    """
    check_device(device, dtype)
    name = resolve(name)
    if followers is not None:
        _check_shared(device, dtype, adapter, followers.size)
        adapter = NONE
    device, device_map = one_device(device), None if followers else device_map or spread(device)
    if device_map is not None:
        check_map(device_map)
    dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
    target = _load(name, device, dtype, attention, device_map, followers, adapter)
    if ready:
        check_trees(target)
    if draft_model is not None:
        target.drafting = load_draft_model(draft_model, target, graphs=graphs, ready=ready, lean=lean)
    elif Path(name).resolve() == BUNDLED_MODEL:
        target.drafting = partial(load_draft_model, BUNDLED_DRAFT_MODEL, graphs=graphs)
    if ready and graphs and followers is None:
        capture(target)
        if lean:
            drop_layers(target)
    if ready and graphs:
        check_int8(target)
    return target


def make_ready(target: Target) -> None:
    """Check a target that was loaded without, and capture its forward; and so its draft model, if that is loaded.

    Raises InputError when it cannot verify trees, or not run in its dtype.
    """
    if target.graphs is None and target.traced is None:
        check_trees(target)
        capture(target)
        check_int8(target)
    if isinstance(target.drafting, DraftModel):
        draft = target.drafting.model
        assert isinstance(draft, Target)
        make_ready(draft)


def check_int8(target: Target) -> None:
    """Raises InputError for a target of rounded weights without the captured forward that computes with them."""
    if target.int8 and target.traced is None:
        raise InputError(f"{target.name} cannot run in int8 ({target.eager_because}); use --dtype float32.")


def _check_shared(device: str, dtype: str | None, adapter: str | Path, size: int) -> None:
    """Raises InputError for what a model that `size` processes hold together cannot have."""
    if dtype == INT8:
        raise InputError("int8 weights are for one process; use --dtype float32, or start without torchrun.")
    check_places(device, size)
    if str(adapter) not in (AUTO, NONE):
        raise InputError("A model that several processes hold together takes no adapter; use --adapter none.")


def _load(
    name: str | Path,
    device: str,
    dtype: str,
    attention: str,
    device_map: DeviceMap | None,
    followers: Followers | None,
    adapter: str | Path,
) -> Target:
    """The target where it is to run, neither checked nor captured. Raises InputError."""
    path, shown = Path(name), shorten(name)
    there = os.path.exists(name)  # noqa: PTH110 (Path.exists raises for a name that is too long)
    if not there and (path.is_absolute() or str(name).startswith(".") or str(name).count("/") > 1):
        raise InputError(f"There is no model at {shown}; give a folder with config.json, or a hub id.")
    label = path.name if there else shown
    try:
        model, tokenizer = _load_parts(name, label, dtype, attention, device_map, followers)
        label, style = adapt(model, tokenizer, label, adapter)
        if dtype == INT8:
            round_weights(model)
        if device_map is None and followers is None:
            model.to(device)
    except InputError:
        raise
    except Exception as error:  # the library raises many kinds; a user needs to know that this model did not load
        if lacks_memory(error):
            raise _too_little_memory(device, shown) from error
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"The model {shown} could not be loaded ({shorten(reason[0])}); "
            "give a folder with config.json and weights, or the id of a hub model that this machine can reach."
        ) from error
    if followers is not None:
        return LeadingTarget(model, tokenizer, label, followers)
    if device_map is not None:
        settle_map(model, label)
    return Target(model, tokenizer, label, style, int8=dtype == INT8)


def _too_little_memory(device: str, name: str) -> InputError:
    kind, where = (InputError, "This machine") if device == "cpu" else (DeviceError, f"The device {device}")
    return kind(f"{where} has too little memory for {name}; give a smaller model.")


def load_draft_model(
    name: str | Path, target: Target, *, graphs: bool = True, ready: bool = True, lean: bool = False
) -> DraftModel:
    """A Hugging Face model by path or hub id that drafts for `target`, on its (first) device and in its dtype.

    `graphs`, `ready` and `lean` are as in `load_target`. Raises InputError when it cannot be loaded or has another
    vocabulary.
    """
    dtype = str(target.dtype).removeprefix("torch.")
    how: dict[str, Any] = {"graphs": graphs, "ready": ready, "lean": lean}
    model = load_target(name, device=str(target.device), dtype=dtype, adapter=NONE, **how)
    check_vocabulary(model, target)
    return DraftModel(model, target.vocab_size)


def check_device(device: str, dtype: str | None) -> None:
    """Raises InputError for a device or a dtype that there is not."""
    if dtype is not None and dtype not in (*DTYPES, INT8):
        raise InputError(f"There is no dtype {shorten(repr(dtype))}; choose from {', '.join((*DTYPES, INT8))}.")
    if dtype == INT8 and one_device(device) != "cpu":
        raise InputError("int8 weights are for one CPU; use --device cpu, or --dtype bfloat16.")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise InputError(f"There is no device {shorten(repr(device))}; choose cpu, cuda or auto.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceError("No CUDA device was found; use --device cpu.")


def _load_parts(
    name: str | Path,
    label: str,
    dtype: str,
    attention: str,
    device_map: DeviceMap | None,
    followers: Followers | None,
) -> tuple[Any, Any]:
    """Model and tokenizer. Raises InputError for a kind that is refused, and whatever the library raises."""
    folder = _folder_of(name)
    local = folder is not None
    if not local:
        # One short question to the hub: the loaders below would retry for half a minute.
        HfApi().model_info(str(name), timeout=10)
    # Before anything is made of them: the library would ask on standard input whether to run what they name.
    read = PretrainedConfig.get_config_dict(name, local_files_only=local)[0]
    refuse_own_code(read, "config.json", str(name))
    refuse_large_numbers(read, label)
    refuse_own_code(get_tokenizer_config(name, local_files_only=local), "tokenizer_config.json", str(name))
    config = AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    refuse_unsupported(config, label)
    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)
    if followers is not None:
        check_splits(config, label, followers.size)
        part = (str(name), dtype, attention, local)
        with followers.joining("load", *part):
            model, told = load_part(*part)
    else:
        if folder is not None and device_map is None:
            refuse_without_memory(folder, label, getattr(config, "dtype", None), DTYPES.get(dtype, torch.float32))
        model, told = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=DTYPES.get(dtype, torch.float32),
            attn_implementation=attention,
            device_map=device_map,
            local_files_only=local,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told, and refused in a sentence that names them
        )
    check_weights(told, str(name))
    return model, tokenizer


def _folder_of(name: str | Path) -> Path | None:
    """Where a model lies on this machine: its own folder, or the hub's snapshot; None where that is not whole."""
    if Path(name).exists():
        return Path(name)
    snapshot = hub_snapshot(str(name))
    return snapshot if is_whole(snapshot) else None


def refuse_without_memory(folder: Path, name: str, stored: torch.dtype | None, dtype: torch.dtype) -> None:
    """Raises InputError for weights in `folder` that do not fit into memory: Linux would kill the process for them."""
    size = sum(file.stat().st_size for file in weight_files(folder) if file.is_file())
    needed, free = size * dtype.itemsize // (stored or torch.float32).itemsize, free_memory()
    if free is not None and needed > free:
        raise InputError(
            f"This machine has too little memory for {name}: its weights take {needed / 1e9:.2g} GB and "
            f"{free / 1e9:.2g} GB are free; give a smaller model, or --dtype bfloat16."
        )


def refuse_unsupported(config: Any, name: str) -> None:
    """Raises InputError for models whose layers cannot gather branches: linear, state-space, recurrent, encoders."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    foreign = kinds - {"full_attention", "sliding_attention", "attention"}
    if foreign or getattr(config, "is_encoder_decoder", False):
        what = ", ".join(sorted(foreign)) or "an encoder and a decoder"
        raise InputError(
            f"{name} has {what}: its cache cannot follow branches of a tree; "
            "choose a decoder-only model with full attention."
        )


def check_trees(target: Target) -> None:
    """Score a small tree, keep a branch, score on, and compare with plain forwards. Raises InputError on a difference.

    This is what tells a model with full attention from one that merely accepts a mask and positions.
    """
    vocabulary = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, target.vocab_size, (12,), generator=vocabulary).tolist()
    builder = TreeBuilder(tokens[3])
    builder.add_path([tokens[4], tokens[5]])
    branch = builder.add_path([(tokens[4] + 1) % target.vocab_size, tokens[7]])
    tree = builder.build()
    try:
        store = target.prefill(tokens[:4]).store.clone(12)
        first = target.logits(store, tree)[branch[-1]]
        store.keep(tree.path_to(branch[-1]))
        second = target.logits(store, TokenTree.chain(tokens[8]))[0]
        path = [*tokens[:3], *(tree.tokens[node] for node in tree.path_to(branch[-1]))]
        plain = target.plain_logits([*path, tokens[8]]).float()
        worst = max(gap(first, plain[-2]), gap(second, plain[-1]))
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, NotImplementedError) as error:
        if lacks_memory(error):
            raise _too_little_memory(str(target.device), target.name) from error
        raise InputError(
            f"{target.name} cannot be scored with a tree of drafts ({error}); choose another model."
        ) from error
    if not worst <= TOLERANCE[target.dtype]:
        raise InputError(
            f"{target.name} does not score a tree of drafts as it decodes (its logits differ by {worst:.2g}); "
            "choose a decoder-only model with full attention."
        )
