"""The choice of the compiled decoder's vector width by the processor's kind and features."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

import llvmlite.binding

X86 = ("x86_64", "amd64")
ARM = ("aarch64", "arm64")


def choose_vector_width(machine: str, features: Mapping[str, bool]) -> int:
    """How many float32 a vector holds on this kind of machine (`platform.machine`); 0 if the decoder cannot run there.

    The decoder needs fused multiply-add, because without it each product would call the C library. x86 has had it since
    2013, and every 64-bit ARM processor has it. On ARM, LLVM splits each of our vectors into two NEON vectors.
    """
    if machine.lower() in ARM:
        return 8
    if machine.lower() not in X86 or not features.get("fma"):
        return 0
    return 16 if features.get("avx512f") else 8


def host() -> tuple[str, Mapping[str, bool]]:
    """The kind of this machine, and its processor's features under LLVM's names."""
    return platform.machine(), llvmlite.binding.get_host_cpu_features()


def host_vector_width() -> int:
    """How many float32 a vector holds on this machine; 0 if the decoder, whose threads need POSIX, cannot run here."""
    return choose_vector_width(*host()) if os.name == "posix" else 0
