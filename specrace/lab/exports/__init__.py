"""A recommendation as other engines write it: exact option names, one file an engine."""

from __future__ import annotations

from specrace.lab.exports import llama_cpp, sglang, specrace, tensorrt_llm, transformers, vllm
from specrace.lab.exports.base import Choice, Engine, Export

ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in (vllm, sglang, tensorrt_llm, llama_cpp, transformers, specrace)
}

__all__ = ["ENGINES", "Choice", "Engine", "Export"]
