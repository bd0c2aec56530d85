"""Models by short name: what `--model NAME` stands for beside a folder or a hub id."""

from __future__ import annotations

from pathlib import Path

from specrace.core.bundled import BUNDLED_MODEL

# A short name and where the model is: a folder that ships, or an id on the Hugging Face hub.
NAMES: dict[str, str | Path] = {
    "tiny": BUNDLED_MODEL,
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "smollm2-360m": "HuggingFaceTB/SmolLM2-360M-Instruct",
    "smollm2-1.7b": "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    "qwen2.5-0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B-Instruct",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "vicuna-7b": "lmsys/vicuna-7b-v1.3",
    "mistral-7b": "mistralai/Mistral-7B-Instruct-v0.3",
}


def resolve(name: str | Path) -> str | Path:
    """The folder or hub id of a short name; anything else as it is. A folder of that name here goes first."""
    known = NAMES.get(str(name))
    return name if known is None or Path(name).is_dir() else known
