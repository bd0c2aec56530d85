"""A recommendation as settings of other engines, with their exact option names; one module for each engine."""

from __future__ import annotations

from specrace.lab.advice.exports import llama_cpp, sglang, specrace, tensorrt_llm, transformers, vllm
from specrace.lab.advice.exports.base import Choice, Engine, Export

ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE for module in (vllm, sglang, tensorrt_llm, llama_cpp, transformers, specrace)
}

__all__ = ["ENGINES", "Choice", "Engine", "Export"]
