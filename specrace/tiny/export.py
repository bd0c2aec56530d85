"""From a checkpoint to an ordinary Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from specrace.core.errors import InputError

# The small preset's weights are one file; a larger model's are split.
MAX_SHARD = "15500KB"


def load_checkpoint(work: Path) -> LlamaForCausalLM:
    """The model of a training folder, as its latest checkpoint has it. Raises InputError where there is none."""
    path = work / "checkpoint.pt"
    if not path.exists():
        raise InputError(f"{work} holds no checkpoint; train first.")
    state = torch.load(path, weights_only=True, map_location="cpu")
    model = LlamaForCausalLM(LlamaConfig.from_dict(state["config"]))
    model.load_state_dict(state["model"])
    return model.eval()


def export(work: Path, out: Path) -> None:
    """Write config, bfloat16 weights and tokenizer to `out`."""
    model = load_checkpoint(work).to(torch.bfloat16)
    model.save_pretrained(out, max_shard_size=MAX_SHARD)
    AutoTokenizer.from_pretrained(work, trust_remote_code=False).save_pretrained(out)
