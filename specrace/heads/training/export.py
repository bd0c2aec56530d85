"""Writes a trained head as a folder that races load: config.json, model.safetensors, and the card README.md.

The card says how the head was trained, and what was measured on answers that were held out from its training.
The layouts are those of the reference implementations: EAGLE's, EAGLE-3's with `d2t` and `t2d`, Medusa's, Hydra's, and
DSpark's with the mask's embedding. A shortlist, the tokens that a head can guess, is stored as `d2t` (a token's id
minus its place in the list), even where the reference implementation has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specrace.core.errors import InputError, shorten
from specrace.heads.checkpoint import Checkpoint, write_checkpoint
from specrace.heads.modules.config import HeadConfig
from specrace.heads.training.evaluation import Acceptance
from specrace.heads.training.shards import DataDescription
from specrace.heads.training.shortlist import offsets
from specrace.heads.training.trainer import HeadRecipe, Progress, read_levels
from specrace.model.target import MASKS
from specrace.model.weights.fingerprint import fingerprint

ARCHITECTURES = {
    "block": "DSparkDraftModel",
    "eagle": "LlamaForCausalLMEagle",
    "eagle3": "LlamaForCausalLMEagle3",
    "medusa": "MedusaModel",
    "hydra": "HydraModel",
    "space": "SpaceMasks",
    "space-target": "SpaceMasks",
}
# What heads of some kinds draft from each token, for the card; others draft chains.
_DRAFTS = {"block": "blocks", "space": "masks in chains", "space-target": "masks in chains"}
# A head that ships with the package is at most this large, so that the package stays small; a test checks it.
MAX_SHIPPED_BYTES = 10_000_000


@dataclass(frozen=True)
class TrainedHead:
    """A trained head: `tensors` by their published names, the ids that it can guess, and how it came about."""

    tensors: dict[str, Tensor]
    shortlist: Tensor
    recipe: HeadRecipe
    progress: Progress
    data: DataDescription


@dataclass(frozen=True)
class Figures:
    """What was measured on held-out answers; `coverage`: the share of their tokens that are in the shortlist."""

    greedy: Acceptance
    sampled: Acceptance
    coverage: float
    num_answer_tokens: int


def export(head: TrainedHead, target_config: Any, out: Path) -> None:
    """Write config.json and model.safetensors into the folder `out`. Raises InputError if that fails.

    The tensors are in bfloat16; masks, a few kB, are in float32.
    """
    vocab_size, has_masks = target_config.vocab_size, head.recipe.kind.startswith("space")
    dtype = torch.float32 if has_masks else torch.bfloat16
    tensors = {name: tensor.to(dtype).contiguous() for name, tensor in head.tensors.items()}
    if not has_masks:
        tensors["d2t"] = offsets(head.shortlist)
    if head.recipe.kind == "eagle3":
        tensors["t2d"] = torch.zeros(vocab_size, dtype=torch.bool).index_fill(0, head.shortlist, value=True)
    write_checkpoint(Checkpoint("The head", _config(head, target_config), tensors), out)


def export_target(model: Any, tokenizer: Any, head: TrainedHead, out: Path) -> None:
    """Write a trained target as a model's folder, and its masks into `MASKS` in it. Raises InputError if that fails."""
    try:
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    except OSError as error:
        raise InputError(
            f"The model cannot be written to {shorten(out)} ({shorten(error)}); give another folder with --out."
        ) from error
    # The masks belong to the weights that were trained with them.
    data = replace(head.data, target=f"{head.data.target}, trained with masks", fingerprint=fingerprint(model))
    export(replace(head, data=data), model.config, out / MASKS)


def _config(head: TrainedHead, target_config: Any) -> dict[str, Any]:
    """The config of an exported head: Llama's fields for one layer, and the fields that identify its target."""
    kind = head.recipe.kind
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind if kind in ("medusa", "hydra") else "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": target_config.vocab_size,
        "draft_vocab_size": len(head.shortlist),
        "hidden_size": target_config.hidden_size,
        "target_name": head.data.target,
        "target_fingerprint": head.data.fingerprint,
    }
    if kind.startswith("space"):
        masks = {"num_masks": head.recipe.depths, "frozen_target": kind == "space"}
        return config | masks | {"model_type": "space", "torch_dtype": "float32"}
    if kind == "medusa":
        return config | {"medusa_num_heads": head.recipe.depths, "medusa_num_layers": 1}
    if kind == "hydra":
        sizes_of_heads = {"hydra_num_heads": head.recipe.depths, "hydra_num_layers": 1}
        return config | sizes_of_heads | {"hydra_head_arch": "mlp", "grounded_heads": True, "hidden_state_offset": 0}
    sizes = HeadConfig.fitting(target_config, len(head.shortlist))
    config |= {
        "num_hidden_layers": 1,
        "intermediate_size": sizes.intermediate_size,
        "num_attention_heads": sizes.num_attention_heads,
        "num_key_value_heads": sizes.num_key_value_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.rms_norm_eps,
        "rope_theta": sizes.rope_theta,
        "max_position_embeddings": target_config.max_position_embeddings,
        "tie_word_embeddings": False,
    }
    if kind == "eagle":
        return config | {"bias": True}
    if kind == "block":
        return config | _block_fields(head, sizes)
    # In `eagle_config`, for SGLang, the numbers name layers by their outputs; at the top, for vLLM, they are levels.
    levels = list(head.data.levels[:-1])
    return config | {
        "target_hidden_size": target_config.hidden_size,
        "eagle_aux_hidden_state_layer_ids": levels,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [level - 1 for level in levels]},
    }


def _block_fields(head: TrainedHead, sizes: HeadConfig) -> dict[str, Any]:
    """The fields that only a block head's config has; it names layers by their outputs, which are one below levels."""
    levels = read_levels("block", head.data.levels)[:-1]
    return {
        "num_key_value_heads": sizes.num_attention_heads,
        "block_size": head.recipe.depths,
        "sample_from_anchor": True,
        "dflash_config": {"target_layer_ids": [level - 1 for level in levels]},
    }


def card(head: TrainedHead, figures: Figures, file_bytes: int) -> str:
    """The text of the card: target, data, training, and what was measured on held-out answers."""
    depths = range(1, len(figures.greedy.by_depth) + 1)
    recipe, progress, data = head.recipe, head.progress, head.data
    rows = [
        f"| {name} | {' | '.join(f'{share:.2f}' for share in measured.by_depth)} | {measured.tokens_per_step:.2f} | "
        f"{measured.num_tokens:,} |"
        for name, measured in (("greedy", figures.greedy), (f"T = {data.recipe.temperature}", figures.sampled))
    ]
    return f"""---
license: apache-2.0
tags: [speculative-decoding, {recipe.kind}]
---

# {recipe.kind} head for {data.target}

{_about(head, file_bytes)}

## How it was made

`python -m specrace.heads train`: {_steps(progress)} over {progress.tokens:,} tokens (with repeats) in
{progress.seconds / 60:.0f} minutes; {_drafts(recipe)}, rate {recipe.rate}, about {recipe.batch_tokens} tokens a
step, seed {recipe.seed}{_guessed(recipe)}.

The target wrote all {figures.num_answer_tokens:,} answer tokens itself, greedily and at T = {data.recipe.temperature},
to questions that it made up and to requests about passages. No question shares eight words in a row with a question of
the benchmark.

## Figures

Held-out questions (one in twenty): the share of drafts that are the target's token, if those before them were. Tokens a
step: for one chain of {len(figures.greedy.by_depth)} drafts at every token. The shortlist has {figures.coverage:.0%} of
the held-out answers' tokens.

| answers | {" | ".join(f"draft {depth}" for depth in depths)} | tokens a step | tokens |
|---|{"---|" * (len(depths) + 2)}
{chr(10).join(rows)}
"""


def _drafts(recipe: HeadRecipe) -> str:
    """What training drafts from each token."""
    return f"{_DRAFTS.get(recipe.kind, 'chains')} of {recipe.depths}"


def _about(head: TrainedHead, file_bytes: int) -> str:
    """What the head fits and how large it is; for masks also what was trained."""
    recipe, data = head.recipe, head.data
    if recipe.kind == "space-target":
        return (
            f"This is {data.target} (fingerprint `{data.fingerprint}`), whose layers were then trained together with\n"
            f"{recipe.depths} masks, in `{MASKS}`. Its texts are its own: a race compares lanes with this model alone."
        )
    size = f"{file_bytes / 1e6:.1f} MB in bfloat16."
    if recipe.kind == "space":
        size = f"It is the embeddings of {recipe.depths} masks ({file_bytes / 1e3:.1f} kB); the target is unchanged."
    return (
        f"The head drafts for this target alone (fingerprint `{data.fingerprint}`), and guesses "
        f"{len(head.shortlist):,} tokens.\n{size}"
    )


def _guessed(recipe: HeadRecipe) -> str:
    """What the head learned to guess besides answers."""
    return "; besides answers, it learned to guess the prompts" if recipe.prompts else ""


def _steps(progress: Progress) -> str:
    """The number of steps, and before it that of the run from whose weights this run began, if there was one."""
    return (
        f"{progress.earlier_steps} and then {progress.step} steps"
        if progress.earlier_steps
        else f"{progress.step} steps"
    )
