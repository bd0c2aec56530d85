"""Checkpoints, and their export to an ordinary Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specrace.core.errors import InputError

CHECKPOINT = "checkpoint.pt"
MAX_SHARD = "15500KB"


def read_checkpoint(work: Path) -> dict[str, Any] | None:
    """The latest checkpoint of a training folder, if any."""
    path = work / CHECKPOINT
    return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None


def load_checkpoint(work: Path) -> LlamaForCausalLM:
    """The model of a training folder's latest checkpoint. Raises InputError if there is none."""
    state = read_checkpoint(work)
    if state is None:
        raise InputError(f"{work} holds no checkpoint; train first.")
    model = LlamaForCausalLM(LlamaConfig.from_dict(state["config"]))
    model.load_state_dict(state["model"])
    return model.eval()


def export(work: Path, out: Path) -> None:
    """Write config, bfloat16 weights and tokenizer to `out`."""
    model = load_checkpoint(work).to(torch.bfloat16)
    model.save_pretrained(out, max_shard_size=MAX_SHARD)
    AutoTokenizer.from_pretrained(work, trust_remote_code=False).save_pretrained(out)
