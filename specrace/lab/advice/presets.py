"""Cost curves by name, for GPUs by the roofline model: bounds from data sheets, not measurements.

A forward reads all weights once and does two operations for each parameter and row (Williams et al. 2009):

    time(rows) = max(2 bytes x parameters / bandwidth, 2 x parameters x rows / operations a second)

Attention, kernel launches and everything else are left out, so on real engines drafting stops paying sooner. Measure a
curve with `calibrate` where you can.
"""

from __future__ import annotations

import re
from pathlib import Path

from specrace.core.cost_curve import ASSUMED_CPU, ASSUMED_GPU, MAX_ROWS, ContextCost, CostCurve
from specrace.core.errors import InputError, shorten

# GPU -> (bytes a second, dense 16-bit operations a second with 32-bit sums, source).
GPUS = {
    "t4": (320e9, 65e12, "NVIDIA T4 data sheet"),
    "l4": (300e9, 121e12, "NVIDIA L4 data sheet; half of its figure with sparsity"),
    "l40s": (864e9, 362e12, "NVIDIA L40S data sheet, without sparsity"),
    "rtx3090": (936e9, 71e12, "NVIDIA GA102 white paper, FP16 with FP32 accumulate, without sparsity"),
    "rtx4090": (1008e9, 165.2e12, "NVIDIA Ada white paper, FP16 with FP32 accumulate, without sparsity"),
    "a100": (2039e9, 312e12, "NVIDIA A100 80GB SXM data sheet, without sparsity"),
    "h100": (3350e9, 989e12, "NVIDIA H100 SXM data sheet; half of its figure with sparsity"),
    "h200": (4800e9, 989e12, "NVIDIA H200 SXM data sheet; half of its figure with sparsity"),
}
ASSUMED = {"assumed-gpu": ASSUMED_GPU, "assumed-cpu": ASSUMED_CPU}
# A GPU and the model's size in billions of parameters, such as h100-8b.
_NAME = re.compile(r"([a-z0-9]+)-(\d{1,4}(?:\.\d{1,3})?)b")
NAMES = f"{', '.join(ASSUMED)}, or a GPU ({', '.join(GPUS)}) and a size such as h100-8b"


def find_curve(name_or_file: str) -> CostCurve:
    """The curve with this name, or the one in a file that `calibrate --out` wrote. Raises InputError."""
    if name_or_file in ASSUMED:
        return ASSUMED[name_or_file]
    match = _NAME.fullmatch(name_or_file)
    if match and match[1] in GPUS and float(match[2]) > 0:
        return roofline_curve(match[1], float(match[2]))
    if Path(name_or_file).exists():
        return CostCurve.load(Path(name_or_file))
    raise InputError(
        f"There is no cost curve {shorten(name_or_file)!r}: give a file that calibrate --out wrote, {NAMES}."
    )


def roofline_curve(gpu: str, billions: float) -> CostCurve:
    """The roofline of a model with `billions` of 16-bit parameters on a GPU.

    It is flat while reading the weights takes longer than the arithmetic, and then proportional to the rows.
    """
    bandwidth, operations, sheet = GPUS[gpu]
    row_ms = 1000 * 2 * billions * 1e9 / bandwidth
    ridge_rows = round(operations / bandwidth)
    ratio = (1.0, 1.0, MAX_ROWS * bandwidth / operations)
    about = {
        "device": f"{gpu}, {billions:g} billion parameters of 16 bits",
        "source": f"a roofline, not a measurement: {bandwidth / 1e9:g} GB/s, {operations / 1e12:g} TFLOPS ({sheet})",
    }
    rows = (1, ridge_rows, MAX_ROWS)
    return CostCurve(rows, ratio, (ContextCost(0, row_ms, ratio),), about)


def describe_curve(curve: CostCurve) -> str:
    """Where a curve comes from, in words that end a sentence."""
    for name, assumed in ASSUMED.items():
        if curve == assumed:
            return f"the assumed curve of a {name.removeprefix('assumed-').upper()}, which was not measured"
    about = curve.about
    words = [str(about[name]) for name in ("model", "dtype", "device", "source") if name in about]
    return ", ".join(words) or "a curve that does not say where it was measured"
