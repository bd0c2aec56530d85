"""`python -m tests.measure.lock`: writes the container's requirements with the hashes of their files. Needs uv.

Packages that only torch for NVIDIA GPUs needs go to a separate file. torch for CPUs is on PyTorch's package index, and
pip checks its file by the hash in the index's link.
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
    """The entries for any device, and the entries for GPUs only."""
    # An entry begins with the package's name; the lines of its hashes are indented.
    entries = re.split(r"^(?=[a-z])", locked, flags=re.MULTILINE)
    for_gpus = "".join(entry for entry in entries if FOR_GPUS.match(entry))
    return "".join(entry for entry in entries if not FOR_GPUS.match(entry)), for_gpus


def main() -> None:
    """Write both files."""
    done = subprocess.run([*COMPILE, *TARGET], cwd=ROOT, check=True, capture_output=True, text=True)
    for file, entries in zip((LOCK, CUDA_LOCK), split(done.stdout), strict=True):
        file.write_text(HEAD + entries, encoding="utf-8")


if __name__ == "__main__":
    main()
