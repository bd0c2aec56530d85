"""`python -m tests.measure.lock`: the container's requirements with the hashes of their files. It needs uv.

What only torch for NVIDIA GPUs brings goes to a file of its own. torch for CPUs is on PyTorch's own index, where pip
checks it by the hash in the index's link.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
LOCK, CUDA_LOCK = FOLDER / "container.txt", FOLDER / "container-cuda.txt"
COMPILE = ("uv", "pip", "compile", "requirements.txt", "--generate-hashes", "--no-header", "--no-annotate", "--quiet")
TARGET = ("--python-version", "3.12", "--python-platform", "linux")
FOR_GPUS = re.compile(r"(torch|triton)==|nvidia-|cuda-")
HEAD = "# Made by: python -m tests.measure.lock\n"


def split(locked: str) -> tuple[str, str]:
    """The entries for any device, and those for GPUs."""
    entries = re.split(r"^(?=[a-z])", locked, flags=re.MULTILINE)
    chosen = {True: "", False: ""}
    for entry in entries:
        chosen[bool(FOR_GPUS.match(entry))] += entry
    return chosen[False], chosen[True]


def main() -> None:
    """Write both files."""
    done = subprocess.run([*COMPILE, *TARGET], cwd=ROOT, check=True, capture_output=True, text=True)
    for file, entries in zip((LOCK, CUDA_LOCK), split(done.stdout), strict=True):
        file.write_text(HEAD + entries, encoding="utf-8")


if __name__ == "__main__":
    main()
