"""From a checkpoint to an ordinary Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from specrace.errors import InputError


def load_checkpoint(work: Path) -> Qwen2ForCausalLM:
    """The model of a training folder: the mean of the last checkpoints, or the latest one while training goes on."""
    path = work / "checkpoint.pt"
    if not path.exists():
        raise InputError(f"{work} holds no checkpoint; train first.")
    state = torch.load(path, weights_only=True, map_location="cpu")
    model = Qwen2ForCausalLM(Qwen2Config.from_dict(state["config"]))
    last = [torch.load(file, weights_only=True, map_location="cpu") for file in sorted(work.glob("weights-*.pt"))]
    if last:
        weights = {name: torch.stack([each[name].float() for each in last]).mean(0) for name in last[0]}
    else:
        weights = state["model"]
    model.load_state_dict(weights)
    return model.eval()


def export(work: Path, out: Path) -> None:
    """Write config, bfloat16 weights and tokenizer to `out`."""
    model = load_checkpoint(work).to(torch.bfloat16)
    model.save_pretrained(out, max_shard_size="15MB")
    AutoTokenizer.from_pretrained(work).save_pretrained(out)
