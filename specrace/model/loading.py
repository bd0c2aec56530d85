"""Loads a model by path or hub id, refuses a model that cannot race, and captures its forward so that it runs fast."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Unpack

from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.model.capture import capture, drop_layers
from specrace.model.draft_check import check_trees
from specrace.model.draft_model import DraftModel, check_vocabulary
from specrace.model.machine.device_map import DeviceMap
from specrace.model.placement import place
from specrace.model.pretrained import load_eager
from specrace.model.target import Target
from specrace.model.tensor_parallel import Followers
from specrace.model.weights.source import NONE, ModelChoice, ModelSettings, ModelSource, choose_model, find_source


def load_target(
    model: str | Path | ModelSource = BUNDLED_MODEL,
    *,
    attention: str = "sdpa",
    graphs: bool = True,
    device_map: DeviceMap | None = None,
    followers: Followers | None = None,
    ready: bool = True,
    **settings: Unpack[ModelSettings],
) -> Target:
    """Load a model by short name, path or hub id, and check that it can score trees.

    - `attention`: transformers' name of an attention implementation (see `supported_attention`).
    - `device`: "cpu", "cuda", "cuda:1", or "auto": the GPU, or the CPU if there is none; several GPUs get the layers
      that transformers' `device_map="auto"` gives them. An explicit `device_map` takes precedence.
    - `dtype`: by default "float32" on a CPU and "bfloat16" on a GPU; "int8" is for Llama's family and Gemma 3 on a CPU.
    - `draft_model`: path or hub id of a smaller model to draft with, or several for the lane specinfer; the bundled
      model has its own.
    - `graphs`: capture and replay forwards where possible: CUDA graphs, or on a CPU compiled code or TorchScript.
    - `followers`: the other processes that hold parts of this model (`specrace.model.tensor_parallel.run`).
    - `adapter`: the folder of a low-rank adapter to merge, "none", or "auto": the shipped adapter, if it fits.
    - `ready`: False if the device is not available yet: nothing is computed until the caller calls `make_ready`.
    - `lean`: free the weights of which a captured forward has copies, unless heads are loaded, which may share them.
      Not with `--peers`, other decoders to compare with: they run the model's own layers.

    Raises InputError for a model that does not exist, is not a causal language model, cannot score trees, or cannot be
    spread over devices or split over processes as requested; and for a draft model with a different vocabulary.
    """
    choice = choose_model(model, **settings)
    return load_choice(
        choice, attention=attention, graphs=graphs, device_map=device_map, followers=followers, ready=ready
    )


def load_choice(
    choice: ModelChoice,
    *,
    graphs: bool = True,
    ready: bool = True,
    attention: str = "sdpa",
    device_map: DeviceMap | None = None,
    followers: Followers | None = None,
) -> Target:
    """Load a model that was chosen; the parameters and errors are those of `load_target`."""
    placement = place(choice, device_map, followers)
    # A lean target frees rows of the output layer that a head may share.
    lean = choice.lean and not choice.heads
    target = load_eager(choice.source, attention, placement)
    if ready:
        check_trees(target)
    if choice.drafts:
        target.drafting, *more = [
            load_draft_model(draft, target, graphs=graphs, ready=ready, lean=lean) for draft in choice.drafts
        ]
        target.more_drafting = tuple(more)
    elif Path(choice.source.location).resolve() == BUNDLED_MODEL:
        target.drafting = partial(load_draft_model, find_source(BUNDLED_DRAFT_MODEL), graphs=graphs)
    if ready and graphs and followers is None:
        capture(target)
        if lean:
            drop_layers(target)
    return target


def make_ready(target: Target) -> None:
    """Check a target that was loaded with `ready=False` and capture its forward; do the same for its draft models.

    A draft model that is not loaded yet is left alone. Raises InputError if a model cannot score trees or cannot run
    in its dtype.
    """
    if target.graphs is None and target.replay is None:
        check_trees(target)
        capture(target)
    first = (target.drafting,) if isinstance(target.drafting, DraftModel) else ()
    for drafting in (*first, *target.more_drafting):
        assert isinstance(drafting.model, Target)
        make_ready(drafting.model)


def load_draft_model(
    source: ModelSource,
    target: Target,
    *,
    graphs: bool = True,
    ready: bool = True,
    lean: bool = False,
) -> DraftModel:
    """Load a model that drafts for `target`, on the target's (first) device and in its dtype.

    `graphs`, `ready` and `lean` have the same meaning as in `load_target`. Raises InputError if the model cannot be
    loaded, or if its vocabulary differs from the target's.
    """
    dtype = str(target.dtype).removeprefix("torch.")
    choice = ModelChoice(source, str(target.device), dtype, adapter=NONE, lean=lean)
    model = load_choice(choice, graphs=graphs, ready=ready)
    check_vocabulary(model, target)
    return DraftModel(model, target.vocab_size)
