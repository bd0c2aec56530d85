"""Which vectors the compiled decoder uses on a processor: the only place that asks the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

import llvmlite.binding

X86 = ("x86_64", "amd64")
ARM = ("aarch64", "arm64")


def choose_lanes(machine: str, features: Mapping[str, bool]) -> int:
    """How many float32 a vector holds on a kind of machine, as `platform` names it; 0: no compiled decoder there.

    Without fused multiply-add, which came after AVX (before 2013), each product would be a call of the C library.
    Every 64-bit ARM processor has it; there LLVM makes two NEON vectors of each of ours.
    """
    if machine.lower() in ARM:
        return 8
    if machine.lower() not in X86 or not features.get("fma"):
        return 0
    return 16 if features.get("avx512f") else 8


def host() -> tuple[str, Mapping[str, bool]]:
    """This machine's kind and the processor's features, as LLVM names them."""
    return platform.machine(), llvmlite.binding.get_host_cpu_features()


def host_lanes() -> int:
    """The lanes of a vector on this machine; 0 where nothing is compiled. Threads wait as POSIX has it."""
    return choose_lanes(*host()) if os.name == "posix" else 0
