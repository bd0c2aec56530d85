"""Hugging Face Spaces, which start `python app.py` without flags: other defaults, and flags in the environment."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence

from specrace.core.errors import InputError
from specrace.retrieval.rerank import LIGHT, NONE
from specrace.ui.races import zero_gpu

FLAGS = "SPECRACE_FLAGS"
# The host and port that a Space's proxy expects, and limits for strangers who share two processors or a rented GPU.
DEFAULTS = {
    "host": "0.0.0.0",
    "port": 7860,
    "device": "auto",
    "log": "json",
    "race_tokens": 256,
    "races_per_minute": 6,
    "races_at_once": 2,
    "uploads_per_hour": 30,
}


def is_here() -> bool:
    """Whether this process runs on a Space."""
    return "SPACE_ID" in os.environ


def with_environment(arguments: Sequence[str]) -> list[str]:
    """The flags in the environment, followed by `arguments`, which override them. Raises InputError."""
    try:
        return [*shlex.split(os.environ.get(FLAGS, "")), *arguments]
    except ValueError as error:
        raise InputError(f"{FLAGS} cannot be read ({error}); write it as on a command line.") from None


def check_zero_gpu(options: argparse.Namespace) -> None:
    """Raise InputError for options that do not work on ZeroGPU, which lends a Space a GPU for one function call.

    One model is loaded there before the page is served.
    """
    if not zero_gpu.is_enabled():
        return
    if options.replay is not None:
        raise InputError("A replay needs no GPU; choose a CPU as the Space's hardware.")
    if options.models:
        raise InputError("--models does not work on ZeroGPU, where one model is loaded at the start; leave it out.")
    if options.reranker not in (LIGHT, NONE):
        raise InputError("On ZeroGPU passages are ranked without a GPU; give --reranker light or none.")
    if options.keep_outputs:
        raise InputError("--keep-outputs does not work on ZeroGPU, whose processes keep nothing; leave it out.")
