"""The choice of the compiled decoder's vectors; no other module asks which processor this is."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

import llvmlite.binding

X86 = ("x86_64", "amd64")
ARM = ("aarch64", "arm64")


def choose_lanes(machine: str, features: Mapping[str, bool]) -> int:
    """How many float32 a vector holds on a machine of this kind (`platform.machine`); 0: no compiled decoder there.

    Without fused multiply-add, which x86 has had since 2013, each product would be a call of the C library. Every
    64-bit ARM processor has it; there LLVM makes two NEON vectors of each of ours.
    """
    if machine.lower() in ARM:
        return 8
    if machine.lower() not in X86 or not features.get("fma"):
        return 0
    return 16 if features.get("avx512f") else 8


def host() -> tuple[str, Mapping[str, bool]]:
    """The kind of this machine, and its processor's features by LLVM's names."""
    return platform.machine(), llvmlite.binding.get_host_cpu_features()


def host_lanes() -> int:
    """The lanes of a vector on this machine; 0 if the decoder cannot run here. Its threads need POSIX."""
    return choose_lanes(*host()) if os.name == "posix" else 0
