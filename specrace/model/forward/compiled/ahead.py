"""Compiles the decoder before its first forward, so that the first race need not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)


def compile_decoder(on_progress: Callable[[str, int, int], object] = lambda *_: None) -> None:
    """Compile the decoder if this machine can run it, which takes ten seconds, once per machine. Raises nothing."""
    on_progress("compiling", 0, 0)
    try:
        from specrace.model.forward.compiled.decoder import compile_ahead

        compile_ahead()
    except Exception as error:  # the compiler may raise anything; loading the model will try again
        _log.info("nothing was compiled ahead: %s", error)
